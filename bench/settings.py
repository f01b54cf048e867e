from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from core.config.checks import choice, integer
from core.errors import ConfigError

DTYPES = ("float32", "bfloat16")
MAX_PROMPTS, MAX_TOKENS, MAX_REPEATS, MAX_THREADS, MAX_PROCESSES = 60, 512, 1000, 1024, 64


@dataclass(frozen=True, slots=True)
class Settings:
    """`tokens`: new tokens for each prompt. `repeats`: measurements of each prompt; in suites that
    measure no time, seeds of each prompt above temperature 0. `threads` 0: all cores but one."""

    prompts: int
    tokens: int
    repeats: int
    dtypes: tuple[str, ...]
    threads: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        integer("prompts", self.prompts, 1, MAX_PROMPTS)
        integer("tokens", self.tokens, 1, MAX_TOKENS)
        integer("repeats", self.repeats, 1, MAX_REPEATS)
        for dtype in self.dtypes:
            choice("dtype", dtype, DTYPES)
        integer("threads", self.threads, 0, MAX_THREADS)
        integer("processes", self.processes, 1, MAX_PROCESSES)
        if not self.dtypes or len(set(self.dtypes)) != len(self.dtypes):
            raise ConfigError.of("dtype", self.dtypes, "at least one, each once")

    def with_changes(self, **changes: Any) -> Settings:
        """None leaves a setting unchanged."""
        given_values = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **given_values)

    def to_plain(self) -> dict[str, Any]:
        plain = {**dataclasses.asdict(self), "dtypes": list(self.dtypes)}
        del plain["processes"]  # a results file may be continued with another number
        return plain

    def __str__(self) -> str:
        """The settings as options. Omits `--threads`, whose default depends on the machine, and
        `--processes`."""
        return (
            f"--prompts {self.prompts} --tokens {self.tokens} --repeats {self.repeats} "
            f"--dtype {' '.join(self.dtypes)}"
        )
