"""The picture of a family before and after, from samples made up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.family_chart import ALONE, NAMES, drawn, main
from bench.results import Results
from bench.suites.acceptance_rows import acceptance_rows

SSMS = ("ssm-code", "ssm-stories")


def results(path: Path, accepted: int) -> Results:
    """Of every row the same, but that stories' SSM alone accepts half of it."""
    found = Results.open(path, {"suite": "acceptance"}, fresh=True)
    for row in acceptance_rows(SSMS):
        if found.has(**row.key):
            continue
        share = 0.5 if row.speculation.drafters == ("ssm-stories",) else 1.0
        prompts = [
            {
                "id": f"p{i}",
                "domain": domain,
                "seed": 1,
                "rounds": 10,
                "accepted": int(10 * accepted * share),
                "nodes": 80,
                "distinct_4_grams": 0.9,
            }
            for i, domain in enumerate(("stories", "code"))
        ]
        found.add({**row.key, "prompts": prompts})
    return found


def test_before_is_pale_and_after_is_full(tmp_path: Path) -> None:
    before, after = results(tmp_path / "a.json", 2), results(tmp_path / "b.json", 3)
    picture = drawn(before, after, ("stories", "code"))
    tips = re.findall(r'fill="(#\w+)"><title>([\d.]+)', picture)
    # Two temperatures, two domains and all, each name twice.
    assert len(tips) == 2 * 3 * 2 * len(NAMES)
    pale = [value for colour, value in tips if len(colour) == 9]
    full = [value for colour, value in tips if len(colour) == 7]
    assert set(pale) == {"3.00"} and set(full) == {"4.00"}
    assert len(pale) == len(full) and ALONE in picture


def test_the_best_ssm_alone_is_the_domains(tmp_path: Path) -> None:
    """The other's half as many tokens are nowhere."""
    found = results(tmp_path / "a.json", 2)
    assert ">2.00" not in drawn(found, found, ("stories", "code"))


def test_it_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        results(tmp_path / f"{name}.json", 2)
    picture = tmp_path / "made" / "family.svg"
    asked = [str(tmp_path / "a.json"), str(tmp_path / "b.json"), str(picture)]
    assert main(asked) == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    other = Results.open(tmp_path / "c.json", {"suite": "passes"})
    other.add({"ms": 1.0})
    assert main([asked[0], str(other.path)]) == 2
    assert "a file of the acceptance suite's samples" in capsys.readouterr().err
