"""Queries of runs, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from core.config.checks import boolean
from core.errors import ConfigError
from core.events import RunStats

__all__ = [
    "NO_DRAFTER",
    "ORDERS",
    "PlainSpeed",
    "STATUSES",
    "RunChoices",
    "RunPage",
    "RunQuery",
    "RunSummary",
]

STATUSES = ("running", "completed", "cancelled", "failed", "interrupted")
NO_DRAFTER = "none"

# Of two runs with the same figure the newer comes first; a run without figures comes last.
NEWEST = "created_utc DESC, id DESC"
ORDERS = {
    "newest": NEWEST,
    "oldest": "created_utc, id",
    "fastest": f"tokens_per_second DESC, {NEWEST}",
    "longest": f"num_new_tokens DESC, {NEWEST}",
    "acceptance": f"mean_acceptance_length DESC, {NEWEST}",
    "passes": f"num_rounds NULLS LAST, {NEWEST}",
}


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs, in which order, on which page.

    `text`: words; each word must occur in the prompt, the output or the note. `status`: one of
    STATUSES, empty for all. `owner`: a visitor's key, None for all. `order`: a name in ORDERS.
    `llm`, `drafter`: names as in the runs, empty for all; the drafter NO_DRAFTER means plain
    decoding. `since_utc`, `until_utc`: only runs created at or after the first time and before the
    second; ISO dates or times, in UTC if without an offset. `noted`: only runs with a note;
    `alone`: only runs that belong to no study. Raises ConfigError.
    """

    text: str = ""
    status: str = ""
    owner: str | None = None
    order: str = "newest"
    limit: int = 50
    offset: int = 0
    llm: str = ""
    drafter: str = ""
    since_utc: str = ""
    until_utc: str = ""
    noted: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        if self.status and self.status not in STATUSES:
            raise ConfigError.must_be(
                "status", self.status, f"empty or one of {', '.join(STATUSES)}"
            )
        if self.order not in ORDERS:
            raise ConfigError.must_be("order", self.order, f"one of {', '.join(ORDERS)}")
        for name, low in (("limit", 1), ("offset", 0)):
            value = getattr(self, name)
            # SQLite's integers have 64 bits.
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**63:
                raise ConfigError.must_be(name, value, f"a whole number from {low}")
        for name in ("llm", "drafter"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError.must_be(name, getattr(self, name), "a name, or empty for all")
        for name in ("noted", "alone"):
            boolean(name, getattr(self, name))
        for name in ("since_utc", "until_utc"):
            object.__setattr__(self, name, _moment(name, getattr(self, name)))


def _moment(field: str, value: object) -> str:
    """A time in the log's format without the offset: times are compared as texts."""
    if value == "":
        return ""
    try:
        if not isinstance(value, str):
            raise ValueError
        moment = datetime.fromisoformat(value.strip())
        moment = moment.astimezone(UTC) if moment.utcoffset() is not None else moment
    except (ValueError, OverflowError) as error:
        allowed = "empty, or a date or time such as 2026-01-31 or 2026-01-31T18:30"
        raise ConfigError.must_be(field, value, allowed) from error
    text = moment.replace(tzinfo=None).isoformat()
    # Times in the log have three decimals. Trailing zeros would make this text sort after an equal
    # time.
    return text.rstrip("0") if "." in text else text


@dataclass(frozen=True, slots=True)
class PlainSpeed:
    """The speed of plain decoding that a run is compared with. `run_id`: the run that measured this
    speed; `note`: a remark on the measurement. `blocks`: pairs of speeds, plain decoding's and the
    run's, if the two were measured in turns. `same_text`: whether plain decoding wrote the same
    text as the run; also False if the texts were not compared."""

    tokens_per_second: float
    run_id: str
    note: str
    blocks: tuple[tuple[float, float], ...] = ()
    same_text: bool = False


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run without its rounds.

    `config`, `asked`: see `core.events.RunStarted`. `ssms`: the loaded SSMs in order. `stats`: None
    while no figures are recorded. `num_lost_events`: at least this number of events are missing;
    the run can be read up to the first missing event. `thinned`: whether trees of the run were
    reduced to their accepted paths. `elsewhere`: whether the run is running in another process.
    `regret`: how many LLM passes other choices of SSMs would have needed; None if the passes were
    not counted. `schedules`: the engine's schedules in the run's rounds, except `each`, which is
    not recorded; `num_others`: the largest number of other live requests in rounds that record a
    schedule."""

    run_id: str
    created_utc: str
    status: str
    prompt: str
    output: str
    llm: str
    drafters: tuple[str, ...]
    config: dict[str, Any]
    seed: int
    stats: RunStats | None
    finish_reason: str
    error: str
    num_rounds: int
    owner: str = ""
    error_message: str = ""
    num_lost_events: int = 0
    asked: dict[str, Any] = field(default_factory=dict)
    ssms: tuple[str, ...] = ()
    note: str = ""
    thinned: bool = False
    baseline: PlainSpeed | None = None
    regret: dict[str, Any] | None = None
    elsewhere: bool = False
    schedules: tuple[str, ...] = ()
    num_others: int = 0


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs; `total`: the number of runs on all pages."""

    rows: tuple[RunSummary, ...]
    total: int


@dataclass(frozen=True, slots=True)
class RunChoices:
    """The names of the LLMs and drafters in the log's runs, sorted."""

    llms: tuple[str, ...]
    drafters: tuple[str, ...]
