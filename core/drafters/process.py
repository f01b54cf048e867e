"""DraftingProcess: a child process with copies of the SSMs, and the wire to it.

Two threads of one interpreter share its lock, and a small model's pass in torch's calls is mostly
interpreter: a thread beside the LLM's passes gains next to nothing on a CPU, a process most of what
there is to gain. A compiled pass lets go of the lock: there a thread hides more than a process,
whose wire costs more than the lock does (both: `python -m bench --suite lanes`). The child is
`python -m core.drafters.child`; it lives until its wire is closed, so it cannot outlive this
process, however that ends.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core.drafters.wire import Wire
from core.errors import DrafterError, EngineError
from core.models.hf_model import HfModel
from core.models.language_model import LanguageModel
from core.models.memory import available_bytes

__all__ = ["DraftingProcess", "process_helps"]

PATIENCE_S = 10.0
LOOK_S = 1.0
IDLE_LOOKS = 5
# What pickling somebody else's module may raise.
UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError, RuntimeError, RecursionError)


def process_helps(models: Mapping[str, LanguageModel], llm: LanguageModel) -> bool:
    """Whether a process serves these SSMs better than a thread: some pass, theirs or the LLM's, is
    not compiled; on a CPU with a core to spare, where descriptors can be inherited, with room for
    the copies."""
    ours = [model for model in models.values() if isinstance(model, HfModel)]
    if not ours or len(ours) < len(models) or os.name != "posix":
        return False
    if all(getattr(model, "own_threads", False) for model in (llm, *ours)):
        return False
    if (os.cpu_count() or 1) < 2 or any(model.device.type != "cpu" for model in ours):
        return False
    free = available_bytes(torch.device("cpu"))
    return free is None or sum(model.weight_bytes for model in ours) < free // 2


class DraftingProcess:
    """Starting takes seconds: it happens in a thread. `error` says why there is no process, or no
    more; empty while there is nothing to say."""

    def __init__(self, models: Mapping[str, LanguageModel], vocab_size: int) -> None:
        self.error = ""
        self._originals = {n: m for n, m in models.items() if isinstance(m, HfModel)}
        self._vocab_size = vocab_size
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._ends: list[Any] = []  # the wire and the child, for whoever ends them
        self._wire: Wire | None = None
        self.child: subprocess.Popen[bytes] | None = None
        self._starter = threading.Thread(target=self._start, name="drafting-start", daemon=True)
        self._starter.start()
        self._finalizer = weakref.finalize(self, _end, self._ends)

    @property
    def ready(self) -> bool:
        """Whether it can be asked."""
        return self._ready.is_set() and not self.error

    def wait(self, timeout: float) -> bool:
        """Waits (s) until it is ready; False where it is not, or never will be."""
        self._ready.wait(timeout)
        return self.ready

    def close(self) -> None:
        """Ends the process and waits for its end; safe to call in any state."""
        self.error = self.error or "it was closed"
        if self.child is not None and not self._ready.is_set():
            self.child.kill()  # it is still reading
        self._starter.join()
        self._finalizer()

    # -- asking --

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the child's and returns what it returns. Raises EngineError or
        DrafterError where it failed, EngineError where there is no child."""
        with self._lock:
            self.send((method, arguments))
            return self.receive()

    def send(self, message: Any) -> None:
        """Half of `ask`: for whoever does something else before the answer."""
        try:
            self._reached.send(message)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self) -> Any:
        """The other half."""
        try:
            failed, found = self._reached.receive()
        except (EOFError, OSError) as error:
            raise self._lost(error) from error
        if failed:
            name, said = found
            raise DrafterError(name, EngineError(said)) if name else EngineError(said)
        return found

    @property
    def _reached(self) -> Wire:
        if self._wire is None or self.error:
            raise EngineError(f"the drafting process is gone: {self.error or 'it never came'}")
        return self._wire

    def _lost(self, how: Exception) -> EngineError:
        silent = isinstance(how, TimeoutError)
        if silent and self.child is not None:
            self.child.kill()  # it may only be stopped, and go on when nobody expects it
        try:
            status = None if self.child is None else self.child.wait(1.0)
        except subprocess.TimeoutExpired:
            status = None
        unanswered = silent or status is None
        self.error = "it does not answer" if unanswered else f"it ended with status {status}"
        return EngineError(f"the drafting process is gone: {self.error}")

    # -- starting --

    def _start(self) -> None:
        try:
            self._begin()
        except (OSError, EOFError, *UNPICKLABLE) as error:
            self.error = self.error or f"it did not start ({type(error).__name__}: {error})"
        finally:
            self._ready.set()

    def _begin(self) -> None:
        parts = {name: model.parts for name, model in self._originals.items()}
        if self.error:
            return  # closed meanwhile
        ours, theirs = Wire.pair()
        try:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "core.drafters.child", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is this process's matter
                env=_environment(),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._ends += [ours, self.child]
        self._wire = ours
        ours.send((parts, self._vocab_size))
        ours.receive()  # it has read the models
        ours.be_patient(LOOK_S, Toil(self.child.pid))


class Toil:
    """Whether a process that does not answer is at work: to read a long text may take minutes, but
    one that was stopped would never answer."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._ticks = self._idle = 0

    def __call__(self) -> bool:
        """False after some looks between which it did nothing, or could not be looked at."""
        before, self._ticks = self._ticks, self._worked()
        self._idle = 0 if self._ticks > before else self._idle + 1
        return self._idle < IDLE_LOOKS

    def _worked(self) -> int:
        """Its processor time, in the kernel's ticks."""
        try:
            fields = self._stat.read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])
        except (OSError, ValueError, IndexError):
            return self._ticks


def _end(ends: list[Any]) -> None:
    """Closes the wire, which ends the child, and waits for that."""
    if not ends:
        return
    wire, child = ends
    wire.close()
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _environment() -> dict[str, str]:
    """This process's, with one thread and with our packages in sight."""
    ours = str(Path(__file__).resolve().parents[2])
    paths = [ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
