"""The studies in Sessions: one list of all kinds, each opened in its own tab."""

from __future__ import annotations

from typing import Any

from tests.ui.test_studies import ended, mine, slow, study
from ui.server.context import Context
from ui.server.session import TabSession
from ui.shared.past_studies import ROWS, listed_studies, press_list


def kept(context: Context, kind: str, owner: str = "me") -> str:
    one = study(context, kind)
    context.store.studies.save(one.to_plain(), len(one), owner)
    return one.study_id


def rows(values: list[Any]) -> list[dict[str, Any]]:
    return list(values[0]["rows"].values())


def test_studies_of_every_kind_stand_in_one_list(context: Context) -> None:
    ids = [kept(context, kind) for kind in ("compare", "tune", "prompts")]
    shown = rows(listed_studies(TabSession(), mine(context)))
    assert [row["study"] for row in shown] == ids[::-1], "the newest first"
    assert [row["when"].split(",")[0] for row in shown] == [
        "Study of prompts",
        "Grid",
        "Comparison",
    ]
    assert all(row["state"] == "stopped" and row["cells"] == "0 of 4" for row in shown)


def test_a_visitor_sees_and_deletes_its_own_alone(context: Context) -> None:
    theirs, own = kept(context, "tune", "bob"), kept(context, "tune", "eve")
    eve, desk = mine(context, "eve", "eve"), TabSession()
    assert [row["study"] for row in rows(listed_studies(desk, eve))] == [own]
    refused = press_list(desk, eve, {"do": "delete", "study": theirs})
    assert "no such study of yours" in refused[1]["lines"]["0"]["text"]
    assert len(mine(context).rows()) == 2


def test_after_the_last_one_is_deleted_none_is_shown(context: Context) -> None:
    one, desk = kept(context, "compare"), TabSession()
    before = listed_studies(desk, mine(context))
    after = press_list(desk, mine(context), {"do": "delete", "study": one})
    assert rows(after) == [] and not after[0]["newer"] and not after[0]["older"]
    assert "Deleted" in after[1]["lines"]["0"]["text"]
    assert after[0]["n"] > before[0]["n"], "an answer that comes late does not bring it back"
    again = press_list(desk, mine(context), {"do": "delete", "study": one})
    assert "no such study" in again[1]["lines"]["0"]["text"]


def test_the_list_is_paged_and_never_past_its_end(context: Context) -> None:
    ids = [kept(context, "compare") for _ in range(ROWS + 1)]
    desk = TabSession()
    first = listed_studies(desk, mine(context))
    assert len(rows(first)) == ROWS and first[0]["older"] and not first[0]["newer"]
    second = press_list(desk, mine(context), {"do": "page", "by": 1})
    assert [row["study"] for row in rows(second)] == ids[:1] and second[0]["newer"]
    gone = press_list(desk, mine(context), {"do": "delete", "study": ids[0]})
    assert len(rows(gone)) == ROWS, "the page before, since this one has none left"
    assert len(rows(press_list(desk, mine(context), {"do": "page", "by": "x"}))) == ROWS


def test_one_that_is_measured_says_so_and_is_not_deleted(context: Context) -> None:
    slow(context)
    asked = study(context, "tune")
    mine(context).begin(asked)
    desk = TabSession()
    (row,) = rows(listed_studies(desk, mine(context)))
    assert row["live"] and row["state"] in ("running", "waiting")
    refused = press_list(desk, mine(context), {"do": "delete", "study": asked.study_id})
    assert "stop it first" in refused[1]["lines"]["0"]["text"]
    mine(context).stop(asked.study_id)
    ended(context)
