"""The picture of a family before and after, from samples made up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.family_chart import ALONE, NAMES, drawn, main
from bench.results import Results
from bench.suites.acceptance_rows import acceptance_rows
from core.errors import ConfigError

SSMS = ("ssm-code", "ssm-stories")


def results(path: Path, accepted: int, tokens: int = 8) -> Results:
    """Of every row the same, but that an SSM alone accepts half of it in another's domain."""
    settings = {"prompts": 2, "tokens": tokens}
    found = Results.open(path, {"suite": "acceptance", "settings": settings}, fresh=True)
    for row in acceptance_rows(SSMS):
        if found.has(**row.key):
            continue
        drafters = row.speculation.drafters
        prompts = [
            {
                "id": f"p{i}",
                "domain": domain,
                "seed": 1,
                "rounds": 10,
                "accepted": 10 * accepted // (1 if f"ssm-{domain}" in drafters else 2),
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
    assert set(pale) == {"2.50", "3.00"} and set(full) == {"3.25", "4.00"}
    assert len(pale) == len(full) and f"{ALONE} (8 nodes)" in picture


def test_the_best_ssm_alone_is_the_domains(tmp_path: Path) -> None:
    """In both domains three tokens a pass; over all each has one of them, and comes to 2.5."""
    found = results(tmp_path / "a.json", 2)
    picture = drawn(found, found, ("stories", "code"))
    assert ">2.00" not in picture and picture.count(">2.50") == 2 * 2


def test_other_settings_are_refused(tmp_path: Path) -> None:
    one, other = results(tmp_path / "a.json", 2), results(tmp_path / "b.json", 2, tokens=9)
    with pytest.raises(ConfigError, match="those of before, {'prompts': 2, 'tokens': 8}"):
        drawn(one, other, ("stories", "code"))


def test_it_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        results(tmp_path / f"{name}.json", 2)
    picture = tmp_path / "made" / "family.svg"
    asked = [str(tmp_path / "a.json"), str(tmp_path / "b.json"), str(picture)]
    assert main(asked) == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    other = Results.open(tmp_path / "c.json", results(tmp_path / "d.json", 2).header)
    other.add({"ms": 1.0})
    assert main([asked[0], str(other.path)]) == 2
    assert "a file of the acceptance suite's samples" in capsys.readouterr().err
