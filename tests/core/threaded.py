"""A drafting process that is a thread: what it is told and answers is the same, and it starts, dies
and falls silent at once."""

from __future__ import annotations

import copy
import socket
import threading

from core.drafters.child import Desk
from core.drafters.process import DraftingProcess
from core.drafters.studio import Studio
from core.drafters.wire import Wire
from core.models.hf_model import HfModel

__all__ = ["ThreadedProcess"]

LOOK_S = 0.02


class ThreadedProcess(DraftingProcess):
    """`die` and `hush` are what SIGKILL and SIGSTOP are to the other."""

    def _begin(self) -> None:
        parts = {n: model.parts for n, model in self._originals.items()}
        self.models = {n: HfModel(*copy.deepcopy(of)) for n, of in parts.items()}
        ours, self._theirs = Wire.pair()
        self._wire, self._hushed = ours, threading.Event()
        looks = iter(range(3))
        ours.be_patient(LOOK_S, lambda: not self._hushed.is_set() or next(looks, None) is not None)
        desk = Desk(self._theirs, Studio(self.models, self._vocab_size))
        self._server = threading.Thread(target=self._serve, args=(desk,), daemon=True)
        self._server.start()

    def _serve(self, desk: Desk) -> None:
        while True:
            try:
                message = self._theirs.receive()
                if self._hushed.is_set():
                    return
                desk.serve(*message)
            except (EOFError, OSError):
                return

    def die(self) -> None:
        """Its end is closed, as a killed process's is."""
        self._theirs._end.shutdown(socket.SHUT_RDWR)
        self._server.join()

    def hush(self) -> None:
        """Reads one message more and answers nothing, like one that is stopped."""
        self._hushed.set()

    def close(self) -> None:
        super().close()
        self._theirs._end.shutdown(socket.SHUT_RDWR)
        self._server.join()
        self._theirs.close()
        if self._wire is not None:
            self._wire.close()
