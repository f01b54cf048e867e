"""The picture of a family before and after its SSMs were tuned, from made-up samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.family_chart import ALONE, NAMES, family_figure, main
from bench.results import Results
from bench.suites.acceptance_rows import acceptance_rows
from core.errors import ConfigError

SSMS = ("ssm-code", "ssm-stories")


def results(path: Path, accepted: int, tokens: int = 8) -> Results:
    """Samples whose rows accept `accepted` tokens a round in their SSMs' domains, half as many in
    other domains."""
    settings = {"prompts": 2, "tokens": tokens}
    result = Results.open(path, {"suite": "acceptance", "settings": settings}, fresh=True)
    for row in acceptance_rows(SSMS):
        if result.has(**row.key):
            continue
        drafters = row.speculation.drafters
        shared_fields = {"seed": 1, "rounds": 10, "nodes": 80, "distinct_4_grams": 0.9}
        prompts = [
            {**shared_fields, "id": f"p{i}", "domain": domain, "accepted": 10 * accepted // parts}
            for i, domain in enumerate(("stories", "code"))
            for parts in [1 if f"ssm-{domain}" in drafters else 2]
        ]
        result.add({**row.key, "prompts": prompts})
    return result


def test_bars_before_are_pale_and_bars_after_are_opaque(tmp_path: Path) -> None:
    before, after = results(tmp_path / "a.json", 2), results(tmp_path / "b.json", 3)
    picture = family_figure(before, after, ("stories", "code"))
    # A series for each name and temperature, before and after.
    assert len(picture.data) == 2 * len(NAMES) * 2
    assert {bar.x for bar in picture.data} == {("stories", "code", "all")}
    pale = {value for bar in picture.data if bar.opacity < 1 for value in bar.y}
    opaque = {value for bar in picture.data if bar.opacity == 1 for value in bar.y}
    assert pale == {2.5, 3.0} and opaque == {3.25, 4.0}
    assert f"{ALONE} (8 nodes)" in {bar.name for bar in picture.data}


def test_the_best_single_ssm_is_chosen_for_each_domain(tmp_path: Path) -> None:
    """Each SSM has three tokens a pass in its own domain and two in the other: 2.5 over both."""
    result = results(tmp_path / "a.json", 2)
    picture = family_figure(result, result, ("stories", "code"))
    alone = [bar for bar in picture.data if bar.name.startswith(ALONE)]
    assert len(alone) == 4 and {bar.y for bar in alone} == {(3.0, 3.0, 2.5)}


def test_other_settings_are_refused(tmp_path: Path) -> None:
    one, other = results(tmp_path / "a.json", 2), results(tmp_path / "b.json", 2, tokens=9)
    message = "the settings of BEFORE.json, {'prompts': 2, 'tokens': 8}"
    with pytest.raises(ConfigError, match=message):
        family_figure(one, other, ("stories", "code"))


def test_the_command_draws_a_picture_and_refuses_other_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        results(tmp_path / f"{name}.json", 2)
    picture = tmp_path / "made" / "family.html"
    arguments = [str(tmp_path / "a.json"), str(tmp_path / "b.json"), str(picture)]
    assert main(arguments) == 0
    assert picture.read_text(encoding="utf-8").startswith("<!doctype html>")
    other = Results.open(tmp_path / "c.json", results(tmp_path / "d.json", 2).header)
    other.add({"ms": 1.0})
    assert main([arguments[0], str(other.path)]) == 2
    assert "a file of the acceptance suite's samples" in capsys.readouterr().err
    assert main([arguments[0], str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.startswith("error: after is ")
