"""Answers of the page's endpoints, OpenAI's API and `/metrics`.

`python -m tests.golden.api` writes `api.json` anew.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import gradio as gr
from gradio_client import Client
from gradio_client.exceptions import AppError

from bench.page.site import serve
from core import Engine, Worker
from core.models.loading.gguf_cache import CACHE_VARIABLE
from storage import RunQuery, RunStore
from storage.exports import EXPORTS
from tests.fakes import TableModel, loaded_tables, random_table
from ui.api.endpoints import add_endpoints
from ui.openai.routes import openai_routes
from ui.server.context import make_context
from ui.server.visitors import Access

__all__ = ["FILE", "api_answers"]

FILE = Path(__file__).parent / "api.json"
VOCAB = 8
NODES = {"max_tree_nodes": 8, "drafters": ["all"]}
ROUTED = {**NODES, "routing": "cosine", "routed_drafters": 1}
SAMPLING = {"max_tokens": 9, "temperature": 0, "seed": 3, "speculation": NODES}
SETTINGS = [
    {"preset": "sequence", "fields": {"max_tree_nodes": 4}},
    {"preset": "specinfer", "fields": {"max_tree_nodes": 8}},
]
CHAT_TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"
# Names of values that depend on measurements or the machine.
MEASURED = re.compile(
    "best|busy|created|dur|fastest|found|share|slower_because|slowest|ts|(ratio|speed_up)(_high|_low)?"
    "|.*_(bytes|ms|per_second|ratio|s|share|utc)"
)
# A bucket or the sum of a histogram of times.
TIMED_SAMPLE = re.compile(r"^(\S+_seconds_(?:bucket|sum)\{.*\}) \S+$")
IDENTIFIER = re.compile(r"\b[0-9a-f]{12,32}\b|\b[0-9a-f]{8}-[0-9a-f-]{27}\b")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T[\d:.+Z]*")


def api_answers() -> dict[str, Any]:
    ssms = [TableModel(f"ssm-{i}", VOCAB, random_table(VOCAB, i, 2.5), 64) for i in (1, 2)]
    llm = TableModel("llm", VOCAB, random_table(VOCAB, 1, 2.5), 64)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, {CACHE_VARIABLE: folder}),  # not this machine's cache
        RunStore(Path(folder) / "runs.db") as store,
    ):
        loaded = loaded_tables(llm, ssms)
        loaded.tokenizer.chat_template = CHAT_TEMPLATE
        worker = Worker(Engine(loaded))
        context = make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery, EXPORTS)
        # The whole page would take half of the test's time.
        with gr.Blocks() as page:
            add_endpoints(context)
        with serve(page, routes=openai_routes(context)) as url:
            client = Client(url, verbose=False)
            try:
                info = client.view_api(return_format="dict", print_info=False)
                endpoints = info["named_endpoints"]
                # First, because `/metrics` must not count the other runs.
                http = _http_answers(url)
                answers = _answers(client)
                # Last, because the endpoint `runs` must not list the runs of these requests.
                http |= _openai_answers(url)
                return {"endpoints": endpoints, "answers": answers, "http": http}
            finally:
                client.close()
                context.conductor.close()
                worker.close()


def _http_answers(url: str) -> dict[str, Any]:
    completion = json.loads(_http(url, "v1/completions", {"prompt": "w1 w2", **SAMPLING}))
    with urlopen(f"{url}metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {
        "/v1/completions": _without_measured(completion, {}),
        "/metrics": [TIMED_SAMPLE.sub(r"\1 0", line) for line in lines],
    }


def _openai_answers(url: str) -> dict[str, Any]:
    chat = {"messages": [{"role": "user", "content": "w1 w2"}], **SAMPLING}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    bodies: dict[str, dict[str, Any] | None] = {
        "/v1/completions stream": {"prompt": "w1 w2", **SAMPLING, **stream},
        "/v1/completions refused": {"prompt": "w1 w2", "max_tokens": -1},
        "/v1/chat/completions": chat,
        "/v1/chat/completions stream": chat | stream,
        "/v1/models": None,
        "/v1/models/llm": None,
        "/v1/models/none": None,
    }
    names: dict[str, str] = {}
    answers = {}
    for name, body in bodies.items():
        text = _http(url, name.split()[0].lstrip("/"), body)
        chunks = [line.removeprefix("data: ") for line in text.splitlines() if line]
        plain = [json.loads(one) if one != "[DONE]" else one for one in chunks]
        answers[name] = _without_measured(plain if "stream" in name else plain[0], names)
    return answers


def _http(url: str, path: str, body: dict[str, Any] | None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = HttpRequest(f"{url}{path}", data, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        with error:
            return error.read().decode()


def _answers(client: Client) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    answers: list[dict[str, Any]] = []

    def call(endpoint: str, sort_by: tuple[str, ...] = (), **values: Any) -> Any:
        """`sort_by`: the fields that order the rows and prompts, which the endpoint sorts by
        measurements."""
        try:
            answer = client.predict(**values, api_name=f"/{endpoint}")
        except AppError as error:
            answer = {"error": str(error)}
        if sort_by:
            for rows in (answer[field] for field in ("rows", "prompts") if field in answer):
                rows.sort(key=lambda row: [str(row.get(name)) for name in sort_by])
        asked = _without_measured(values, names)
        answers.append({"call": endpoint, **asked, "=": _without_measured(answer, names)})
        return answer

    run = call("generate", prompt="w1 w2", max_new_tokens=9, seed=3, fields=NODES)
    warm = call("generate", prompt="w3", max_new_tokens=9, temperature=0.8, seed=3, fields=NODES)
    call("generate", prompt="", seed=1)
    call("generate", prompt="w1", preset="fastest")
    call("generate", prompt="w1", temperature=-1)
    call("generate", prompt="w1", fields={"warp": 9})
    call("generate", prompt="w1", fields={"verify": "mss"})
    call("runs", order="oldest")
    call("runs", order="sideways")
    call("run", run_id=run["run_id"], events=True)
    call("run", run_id="none")
    for name in ("json", "csv", "trace", "pdf", "html"):
        call("export", run_id=warm["run_id"], format=name)
    call("annotate", run_id=run["run_id"], note="a note")
    call("runs", noted=True)
    call("baseline", run_id=run["run_id"])
    call("prove", run_id=run["run_id"])
    call("prove", run_id=warm["run_id"])
    call("regret", run_id=run["run_id"])
    routed = call("generate", prompt="w1 w2", max_new_tokens=9, seed=3, fields=ROUTED)
    call("regret", run_id=routed["run_id"])
    call("requests")
    for name in ("sideways", "shared", "each", ""):
        call("schedule", name=name)
    asked = {"max_new_tokens": 6, "seed": 5, "repeats": 1}
    study = call("compare", prompt="w1 w2", configurations=SETTINGS, **asked)
    call("studies")
    call("study", study_id=study["study_id"], cells=True)
    by = ("settings", "prompt")
    call("prompts", by, prompts=["w1 w2", "w5"], configurations=SETTINGS, **asked)
    call("prompt_rows", by, study_id=study["study_id"])
    fields = {"speculation_length": [1, 2], "max_tree_nodes": [4]}
    call("tune", prompts=["w1"], fields=fields, preset="sequence", **asked)
    call("models")
    call("load_models", llm="")
    call("load_models", llm="bundled", dtype="float8")
    call("load_models", llm="bundled")
    call("retention")
    call("set_retention", runs=100)
    call("stop_study", study_id=study["study_id"])
    call("stop_study", study_id="none")
    call("resume_study", study_id=study["study_id"])
    call("resume_study", study_id="none")
    call("delete_study", study_id=study["study_id"])
    call("delete", run_id=run["run_id"])
    call("run", run_id=run["run_id"])
    return answers


def _without_measured(value: Any, names: dict[str, str], name: str = "") -> Any:
    if name == "versions" and isinstance(value, dict):
        return dict.fromkeys(value, 0)
    if isinstance(value, dict):
        return {key: _without_measured(item, names, str(key)) for key, item in value.items()}
    if name == "runs" and isinstance(value, list):
        return len(value)  # the order of a study's runs is not fixed
    if isinstance(value, list | tuple):
        return [_without_measured(item, names, name) for item in value]
    if MEASURED.fullmatch(name) and not isinstance(value, bool) and value is not None:
        return 0
    if isinstance(value, str):
        return _text(value, names)
    return value


def _text(text: str, names: dict[str, str]) -> str:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if isinstance(document, dict | list):
        return json.dumps(_without_measured(document, names), ensure_ascii=False)
    if text.startswith("round,"):  # a CSV export
        text = _csv_without_measured(text)
    if text.startswith("<!DOCTYPE html>"):  # a report: its styles and scripts are the page's
        text = text.splitlines()[0]
    text = MOMENT.sub("TIME", text)
    return IDENTIFIER.sub(lambda result: names.setdefault(result[0], f"id-{len(names)}"), text)


def _csv_without_measured(text: str) -> str:
    header, *rows = csv.reader(text.splitlines())
    measured = [bool(MEASURED.fullmatch(name)) or name.startswith("ms: ") for name in header]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow("0" if zero else cell for zero, cell in zip(measured, row, strict=True))
    return lines.getvalue()


def write() -> None:
    text = json.dumps(api_answers(), ensure_ascii=False, indent=1)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    write()
