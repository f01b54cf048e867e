"""`python -m ui.report EVENTS.jsonl OUT.html`: a report of a run that was made without the page,
for example with `python -m core --events ... > EVENTS.jsonl`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from core.errors import ConfigError, SpecScopeError
from core.events import Event, event_from_plain
from ui.report.document import report_html

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Reads events, one JSON object a line, and writes the report. Returns 0, or 2 after printing
    why there is no report."""
    parser = argparse.ArgumentParser(prog="python -m ui.report", description=__doc__)
    parser.add_argument("events", type=Path, help="one event a line, as JSON")
    parser.add_argument("out", type=Path, help="the HTML file to write")
    options = parser.parse_args(arguments)
    try:
        with options.events.open(encoding="utf-8-sig") as lines:
            report = report_html(list(_read_events(lines)))
        options.out.write_text(report, encoding="utf-8")
    except UnicodeDecodeError as error:
        print(f"events is {str(options.events)!r}: a file in UTF-8 ({error})", file=sys.stderr)
        return 2
    except (SpecScopeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")
    return 0


def _read_events(lines: Iterable[str]) -> Iterable[Event]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield event_from_plain(json.loads(line))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"line {number} is no event: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
