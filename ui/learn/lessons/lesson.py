"""The types of a lesson."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from core.config import Request, SamplingParams, SpeculationConfig
from core.config.mechanisms import NGRAM
from core.events import RanksInfo
from ui.learn.lessons.measured import Evidence
from ui.run.explain import RECORD_TOP_K

__all__ = [
    "Attempt",
    "DrafterChoice",
    "Lesson",
    "Question",
    "Setup",
    "Term",
    "missing_reason",
    "request_of",
]

SEED = 7


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """Which drafters a run uses: `none`, `all` SSMs, `all_and_ngram` (also the n-gram lookup), or
    `one` (the first SSM whose name contains `hint`, else the first SSM)."""

    kind: str
    hint: str = ""

    def names(self, loaded: Sequence[str]) -> tuple[str, ...]:
        """The drafters' names; `loaded`: the names of the loaded SSMs."""
        if self.kind == "none":
            return ()
        if self.kind in ("all", "all_and_ngram"):
            return (*loaded, *((NGRAM,) if self.kind == "all_and_ngram" else ()))
        return tuple(([name for name in loaded if self.hint in name] or list(loaded))[:1])


@dataclass(frozen=True, slots=True)
class Setup:
    """One run of a lesson. `label`: the name of its row in the table of runs. `drafters` replaces
    the drafters of `speculation`; without drafters the run is plain decoding. `beside`: prompts of
    requests that run at the same time. `schedule`: the schedule of all requests; if empty, the
    present schedule stays.

    `stream_mbps`: the rate, in MB/s, at which the LLM's layers are copied from memory in each pass,
    as if they did not fit; 0: they are not copied. `wire_ms`: the round-trip time to the SSMs, as
    if they were on another machine; 0: none."""

    label: str
    prompt: str
    drafters: DrafterChoice
    speculation: SpeculationConfig = SpeculationConfig()
    max_new_tokens: int = 48
    temperature: float = 0.0
    beside: tuple[str, ...] = ()
    schedule: str = ""
    stream_mbps: float = 0.0
    wire_ms: float = 0.0

    @property
    def slows(self) -> bool:
        """Whether the run slows the engine down, and with it all requests."""
        return self.stream_mbps > 0 or self.wire_ms > 0


def request_of(setup: Setup, loaded: Sequence[str]) -> Request:
    """The request of a run with the loaded SSMs."""
    drafters = setup.drafters.names(loaded)
    speculation = replace(setup.speculation, drafters=drafters, record_top_k=RECORD_TOP_K)
    if not drafters:
        plain = SpeculationConfig.preset("autoregressive")
        speculation = replace(plain, record_top_k=RECORD_TOP_K)
    sampling = SamplingParams(setup.max_new_tokens, setup.temperature, seed=SEED)
    return Request(setup.prompt, sampling, speculation)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The experiment; without a `setup`, the LLM alone decodes the displayed run's request."""

    words: str
    button: str
    setup: Setup | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the visitor's own runs. `answer` returns None until the runs that `needs`
    asks for have been made.

    A visitor's number must equal the answer if `within` is 0. Otherwise it may differ by the
    fraction `within` of the answer, or by one in the last of `places` decimals. If `numeric` is
    false, the answer is an SSM's name or one of `besides`. `point`: the part of the page to look
    at; `where`: how to find the answer there; `explain`: the answer in words, with the run's own
    numbers.
    """

    words: str
    answer: Callable[[Evidence], float | str | None]
    explain: Callable[[Evidence], str]
    where: str
    point: str
    needs: str = "Run the example first."
    unit: str = ""
    numeric: bool = True
    besides: tuple[str, ...] = ()
    places: int = 0
    within: float = 0.0


@dataclass(frozen=True, slots=True)
class Term:
    """A term that a lesson explains, with its meaning in a line."""

    word: str
    means: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson. `short`: its title in the list of lessons. `example`: its runs in order; the last
    run stays on the board. `pictures`: the board's pictures that the lesson is about. `columns`:
    the columns of the table of runs. `ssms`: how many SSMs the lesson needs. `ranks`: into how many
    parts each layer of the LLM must be divided; 1: any number. `timed`: whether its runs are
    repeated in turns, to measure times. `outcome`: returns a sentence on the result of the runs,
    for lessons whose result can differ from what the text says; may return an empty string."""

    key: str
    title: str
    short: str
    text: tuple[str, ...]
    look: str
    words: tuple[Term, ...]
    example: tuple[Setup, ...]
    attempt: Attempt
    question: Question
    pictures: tuple[str, ...]
    columns: tuple[str, ...]
    ssms: int = 1
    timed: bool = False
    outcome: Callable[[Evidence], str] = lambda _: ""
    ranks: int = 1

    @property
    def setups(self) -> tuple[Setup, ...]:
        """Every run of the lesson: the example's, then the experiment's."""
        experiment = self.attempt.setup
        return (*self.example, *((experiment,) if experiment else ()))


def missing_reason(
    lesson: Lesson,
    loaded: Sequence[str],
    ranks: RanksInfo | None = None,
    can_stream: bool = True,
) -> str:
    """Why the lesson cannot run; empty if it can. `ranks`: how the LLM is divided, None for one
    process; `can_stream`: whether its layers can be streamed."""
    split = ("tp", lesson.ranks)
    if lesson.ranks > 1 and (ranks is None or (ranks.split, ranks.count) != split):
        return (
            f"This lesson cannot run here: it needs an LLM with each layer in {lesson.ranks} "
            f"parts. Start the page with: python app.py --llm-ranks tp={lesson.ranks}"
        )
    if not can_stream and any(setup.stream_mbps for setup in lesson.setups):
        return (
            "This lesson cannot run here: it streams the layers of an LLM that is whole in memory, "
            "on a CPU and in one process. Start the page with: python app.py, without --offload "
            "and --llm-ranks"
        )
    if len(loaded) >= lesson.ssms:
        return ""
    requirement = (
        "a small model (SSM)" if lesson.ssms == 1 else f"{lesson.ssms} small models (SSMs)"
    )
    present = {0: "none is", 1: "only one is"}.get(len(loaded), f"only {len(loaded)} are")
    return f"This lesson cannot run here: it needs {requirement}, and {present} loaded."
