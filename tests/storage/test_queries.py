"""Lists of runs, and deletion."""

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ConfigError, UnknownRunError
from core.events import Event
from storage import ORDERS, STATUSES, RunQuery, RunStore
from tests.logs import log_at
from tests.storage.trouble import record
from tests.synthetic import HOSTILE_TEXTS, synthetic_run

HOSTILE_QUERIES = (
    "", "   ", '"', '""', '"""', "'", "*", "fox*", "*fox", "(", "NEAR(a b)", "AND", "OR NOT",
    "fox AND", "prompt:fox", "nosuch:fox", "-fox", "^fox", "fox + hen", "{prompt output}:fox", "%",
    "_", "\\", ";DROP TABLE runs;--", "\0", "fox\0hen", "\ud83e", "🦊", "x" * 100_000,
    " ".join(["word"] * 5_000), "e\u0301\u0301", *HOSTILE_TEXTS,
)  # fmt: skip


def with_prompt(seed: int, prompt: str, rounds: int = 2, end: str = "completed") -> list[Event]:
    first, *rest = synthetic_run(rounds, seed=seed, end=end)
    return [dataclasses.replace(first, prompt=prompt), *rest]


def ids(store: RunStore, **query: Any) -> list[str]:
    return [run.run_id for run in store.runs(RunQuery(**query)).rows]


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    with RunStore(log_at(tmp_path_factory.mktemp("filled") / "log.db")) as store:
        for seed, end in enumerate(("completed", "cancelled", "failed", "cut", "completed")):
            for event in synthetic_run(3 + seed, seed=seed, end=end, hostile=seed == 2):
                store.record(event, owner=f"visitor-{seed % 2}")
        assert store.flush()
        yield store


def test_pages_cover_all_runs_once(full_store: RunStore) -> None:
    pages = [full_store.runs(RunQuery(limit=2, offset=offset)) for offset in (0, 2, 4, 6)]
    assert [len(page.rows) for page in pages] == [2, 2, 1, 0]
    assert {page.total for page in pages} == {5}
    listed = [run.run_id for page in pages for run in page.rows]
    assert listed == [f"synthetic-{seed}" for seed in (4, 3, 2, 1, 0)]


def test_orders(full_store: RunStore) -> None:
    assert ids(full_store, order="oldest") == ids(full_store, order="newest")[::-1]
    assert all(len(set(ids(full_store, order=order))) == 5 for order in ORDERS)
    for order, figure in (
        ("fastest", "tokens_per_second"),
        ("longest", "num_new_tokens"),
        ("acceptance", "mean_acceptance_length"),
    ):
        runs = full_store.runs(RunQuery(order=order)).rows
        values = [getattr(run.stats, figure) for run in runs if run.stats is not None]
        assert values == sorted(values, reverse=True)
        assert len(values) == 4
        assert runs[-1].stats is None, "a run without figures comes last"


def test_filters(full_store: RunStore) -> None:
    assert ids(full_store, status="cancelled") == ["synthetic-1"]
    assert ids(full_store, status="running") == ["synthetic-3"]
    assert ids(full_store, status="interrupted") == []
    assert ids(full_store, owner="visitor-1") == ["synthetic-3", "synthetic-1"]
    assert ids(full_store, owner="visitor-1", status="cancelled") == ["synthetic-1"]
    assert ids(full_store, owner="") == []
    assert ids(full_store, owner="' OR 1=1 --") == []
    assert full_store.runs(RunQuery(owner="visitor-1", limit=1)).total == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "done"),
        ("order", "prompt; DROP TABLE runs"),
        ("limit", 0),
        ("limit", True),
        ("limit", 1.5),
        ("offset", -1),
        ("offset", 2**63),
        ("llm", 7),
        ("drafter", None),
        ("since_utc", "yesterday"),
        ("until_utc", 5),
        ("since_utc", "0001-01-01T00:00+10:00"),
        ("noted", 1),
        ("alone", 1),
    ],
)
def test_an_invalid_query_is_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        RunQuery(**{field: value})  # type: ignore[arg-type]


def test_the_statuses() -> None:
    assert STATUSES == ("running", "completed", "cancelled", "failed", "interrupted")


def test_an_unknown_run_is_an_error(full_store: RunStore) -> None:
    calls = (
        full_store.run,
        full_store.events,
        full_store.delete,
        lambda run_id: full_store.annotate(run_id, "hi"),
    )
    for call in calls:
        with pytest.raises(UnknownRunError, match="run_id is 'nobody': no such run"):
            call("nobody")


def test_search_finds_words_of_prompt_and_output(store: RunStore, keep: Any) -> None:
    keep(store, with_prompt(1, "SYNTHETIC: The quick brown Vulpine, 42 times"))
    keep(store, with_prompt(2, "SYNTHETIC: 狐狸跑了 and a naïve crème; x += 1;"))
    output = store.run("synthetic-1").output
    assert set(ids(store)) == {"synthetic-1", "synthetic-2"}
    for text in ("vulpine", "VULP", "quick vulpine", "times, brown", "42", '"quick'):
        assert ids(store, text=text) == ["synthetic-1"], text
    for text in ("naive", "crème", "狐狸", "跑", "+=", "x += 1;", "crème 狐"):
        assert ids(store, text=text) == ["synthetic-2"], text
    for text in ("ulpine", "quick nothing", "-=", "跑跑"):
        assert ids(store, text=text) == [], text
    word = max(output.split(), key=len)
    assert "synthetic-1" in ids(store, text=word)


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("C++", [1]),
        ("c++", [1]),
        ("C#", [2]),
        ("C", [3, 2, 1]),
        ("foo_bar", [1]),
        ("foo bar", [2, 1]),
        ("don't", [3]),
        ("(C++),", [1]),
        ("ÜBER-ALL", [2]),
        ("3.5", [2]),
        ("learn C++", [1]),
    ],
)
def test_a_word_is_found_as_it_is_spelled(
    store: RunStore, keep: Any, text: str, results: list[int]
) -> None:
    """The search index has only letters and digits: it would find C for the query C++."""
    prompts = ("I learn C++ and foo_bar", "C# 3.5, foo bar über-all", "C: Don't. 3 or 5")
    for number, prompt in enumerate(prompts, 1):
        keep(store, with_prompt(number, prompt))
    assert ids(store, text=text) == [f"synthetic-{number}" for number in results]


def test_search_and_filters_are_combined(full_store: RunStore) -> None:
    assert ids(full_store, text="synthetic", status="failed") == ["synthetic-2"]
    assert ids(full_store, text="SYNTHETIC", status="running") == ["synthetic-3"]
    assert full_store.runs(RunQuery(text="SYNTHETIC prompt", limit=1)).total == 5


def test_hostile_queries_are_data(full_store: RunStore) -> None:
    for text in HOSTILE_QUERIES:
        assert 0 <= full_store.runs(RunQuery(text=text)).total <= 5, ascii(text)[:30]
        assert full_store.runs(RunQuery()).total == 5, ascii(text)[:30]


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
# Signs and words of SQLite's query language.
SIGNS = st.text(st.sampled_from("\"'*()^:+-{}ANDORNTE fox\0"), max_size=20)


@settings(max_examples=250)
@given(ANY_TEXT | SIGNS)
def test_any_text_may_be_searched_for(full_store: RunStore, text: str) -> None:
    assert full_store.runs(RunQuery(text=text)).total <= 5


def test_deletion_removes_everything_of_the_run_and_nothing_else(store, keep, sql):
    kept = with_prompt(2, "SYNTHETIC: keep me")
    keep(store, with_prompt(1, "SYNTHETIC: Xylophone"))
    keep(store, kept)
    tables = [name for (name,) in sql("SELECT name FROM pragma_table_list WHERE type = 'table'")]
    of_runs = [
        name
        for name in tables
        if any(column[1] == "run" for column in sql(f"PRAGMA table_info({name})"))
    ]
    assert len(of_runs) == 10
    (key,) = sql("SELECT id FROM runs WHERE run_id = 'synthetic-1'")[0]
    count = "SELECT count(*) FROM {} WHERE run = ?"
    assert all(sql(count.format(name), key)[0][0] > 0 for name in of_runs)

    store.delete("synthetic-1")

    assert all(sql(count.format(name), key)[0][0] == 0 for name in of_runs)
    assert sql("SELECT count(*) FROM runs") == [(1,)]
    assert ids(store, text="xylophone") == []
    assert sql("SELECT count(*) FROM runs_fts WHERE runs_fts MATCH 'xylophone'") == [(0,)]
    assert list(store.events("synthetic-2")) == kept
    assert ids(store, text="keep") == ["synthetic-2"]
    with pytest.raises(UnknownRunError, match="no such run"):
        store.delete("synthetic-1")


def test_a_deleted_text_is_in_no_file(store: RunStore, keep: Any, path: Path) -> None:
    secret = dataclasses.replace(synthetic_run(1, seed=1)[0], prompt="the word is xylophone")
    keep(store, [secret, *synthetic_run(3, seed=1)[1:]])
    keep(store, synthetic_run(3, seed=2))

    def files() -> bytes:
        return b"".join(file.read_bytes() for file in sorted(path.parent.glob("log.db*")))

    assert files().count(b"xylophone") >= 2  # in the run and in the index
    store.delete("synthetic-1")
    assert b"xylophone" not in files()


def test_a_deleted_runs_key_is_not_used_again(store: RunStore, keep: Any, sql: Any) -> None:
    keep(store, synthetic_run(1, seed=1))
    before = sql("SELECT max(id) FROM runs")
    store.delete("synthetic-1")
    keep(store, synthetic_run(1, seed=2))
    assert sql("SELECT max(id) FROM runs") > before


def test_any_thread_may_record_and_read(store: RunStore) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            events = synthetic_run(15, seed=seed)
            for event in events:
                store.record(event)
                if event.seq % 20 == 0:
                    assert store.runs(RunQuery(limit=3)).total > 0
            assert store.flush(30.0)  # the reads below wait only one second for the writer
            assert list(store.events(f"synthetic-{seed}")) == events
            last = events[-1]
            assert store.run(f"synthetic-{seed}").stats == last.stats
            if seed % 2:
                store.delete(f"synthetic-{seed}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(ids(store)) == ["synthetic-0", "synthetic-2", "synthetic-4"]
    assert store.status().dropped == 0


def test_a_summary_has_the_request_and_the_loaded_ssms(store: RunStore) -> None:
    for seed, drafters in ((1, ("ssm-b", "ssm-a")), (2, ())):
        started, *rest = synthetic_run(2, seed=seed, drafters=drafters)
        record(store, (started, *rest))
        run = store.run(started.run_id)
        assert run.asked == started.asked != run.config
        assert run.ssms == tuple(m.name for m in started.models if m.role == "ssm")
        assert run.ssms[: len(drafters)] == drafters, "in the order of loading"
