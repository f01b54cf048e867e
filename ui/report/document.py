"""The HTML file of a report."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from string import Template

from core.events import Event, ModelInfo
from core.plurals import number_of
from core.routing.regret import Regret
from ui.components.pictures import PICTURES, Scrubber
from ui.report.embedded_files import fonts_css, plotly_data, report_file, scripts_data, seal, styles
from ui.report.recording import Limits, Recording, record
from ui.run.frame import Baseline
from ui.run.listed import shorten
from ui.run.race import speed_sentence
from ui.run.regret_words import regret_plain
from ui.run.view import View
from ui.words.glossary import GLOSSARY
from ui.words.settings import settings_line

__all__ = ["report_html"]

TITLE_LENGTH = 60
# Surrogates, line separators, characters that change a line's direction, and control characters
# except tab and line feed.
UNSEEN = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def report_html(
    events: Sequence[Event],
    baseline: Baseline | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[float], None] | None = None,
    regret: Regret | None = None,
) -> str:
    """One run as an HTML file that opens from disk and needs no network.

    `events`: all events of one run, from RunStarted on; a run that was cut short may lack its end.
    `baseline`: plain decoding of the same request, for the speed-up; None if it was not measured.
    `regret`: the regret of a routed run; None if it was not counted. `limits`: how much of a long
    run is kept. `on_progress` is called with the fraction done. Equal arguments give equal files.
    Raises ConfigError unless `events` are the events of one run."""
    recording = record(events, baseline, limits, on_progress, regret)
    view = recording.view
    assert view.started is not None
    return Template(report_file("report.html")).substitute(
        title=_text(shorten(" ".join(view.started.prompt.split()), TITLE_LENGTH)),
        prompt=_text(view.started.prompt),
        text=_text(view.text),
        facts="\n".join(
            f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>"
            for name, value in _facts(view, recording, baseline, regret)
        ),
        styles=styles(),
        fonts=fonts_css(),
        boot=report_file("boot.js"),
        scripts=scripts_data(),
        plotly=plotly_data(),
        run=seal(recording.values),
        **_places(),
    )


def _text(text: str) -> str:
    return html.escape(re.sub(UNSEEN, "·", text))


def _places() -> dict[str, str]:
    place = Template(
        '<div class="rp-picture" id="report-$name" data-label="$label" '
        'style="min-height:${height}px">'
        '<div class="ss-shell" data-picture="$name"></div></div>'
    )
    return {
        picture.name: place.substitute(
            name=picture.name, label=_text(picture.label), height=picture.min_height
        )
        for picture in (*PICTURES, Scrubber)
    }


# -- the facts --


def _facts(
    view: View, recording: Recording, baseline: Baseline | None, regret: Regret | None
) -> Iterable[tuple[str, str]]:
    started = view.started
    assert started is not None
    for role, name in (("llm", "LLM"), ("ssm", "SSMs")):
        models = [_model(model) for model in started.models if model.role == role]
        if models:
            yield name, "; ".join(models)
    yield "Settings", settings_line(view)
    yield "Measured", _figures_sentence(view, baseline)
    if regret is not None:
        yield "Routing", regret_plain(regret)["words"]
    when = started.created_utc[:16].replace("T", " ")
    yield "Made", f"{when} UTC, seed {started.seed}, run {started.run_id}"
    versions = [f"{name} {version}" for name, version in started.versions.items()]
    yield "With", ", ".join(versions) or "not recorded"
    if recording.notes:
        yield "Left out", " ".join(recording.notes)


def _model(model: ModelInfo) -> str:
    return f"{model.name} ({model.parameters:,} parameters, {model.dtype}, {model.device})"


def _figures_sentence(view: View, baseline: Baseline | None) -> str:
    stats = view.stats
    rounds = number_of(stats.num_rounds, "round")
    amount = f"{number_of(stats.num_new_tokens, 'token')} in {rounds}"
    drafted = ("mean_acceptance_length", "draft_acceptance_rate") if view.drafters else ()
    names = ("tokens_per_second", *drafted)
    parts = [amount, *(GLOSSARY[name].with_label(getattr(stats, name)) for name in names)]
    first = GLOSSARY["ttft_ms"]
    parts.append(f"{first.label} after {first.text(stats.ttft_ms)}")
    parts.append(speed_sentence(view, baseline))
    return ", ".join(filter(None, parts))
