"""`python -m zoo prepare`: makes a tokenizer, token files and a manifest from corpora."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from core.errors import ConfigError
from core.models.loading.gguf_cache import sha256_of
from zoo.attributions import ATTRIBUTIONS, STANDARD_LIBRARY, UNLISTED
from zoo.corpora import (
    CorpusFile,
    Domain,
    library_corpora,
    prompt_lines,
    read_corpora,
    standard_library,
)
from zoo.files import replace_folder
from zoo.presets import Preset
from zoo.token_bytes import byte_lengths
from zoo.tokenizer import (
    encode,
    open_tokenizer,
    separator,
    train_tokenizer,
    vocabulary_size,
)
from zoo.tokens import (
    DomainTokens,
    Manifest,
    held_out_start,
    mark_incomplete,
    tokenizer_file,
    write_domain,
    write_manifest,
)

__all__ = ["Inputs", "prepare", "report"]

DEFAULT_PROMPTS = Path(__file__).resolve().parent.parent / "bench" / "prompts.jsonl"


@dataclass(frozen=True, slots=True)
class Inputs:
    """What `prepare` reads. Without `corpora`, the preset's own corpus is read from `stdlib`;
    without `tokenizer`, a new tokenizer is trained. Documents that quote `prompts` are left out."""

    corpora: Path | None = None
    tokenizer: Path | None = None
    prompts: Path = DEFAULT_PROMPTS
    stdlib: Path = field(default_factory=standard_library)


def prepare(preset: Preset, inputs: Inputs, out: Path, seed: int = 0) -> Manifest:
    """Reads, normalises and encodes the corpora into `out`; returns the manifest it wrote there."""
    domains = _read_domains(preset, inputs, seed)
    tokenizer = _tokenizer(preset, inputs, domains)
    mark_incomplete(out)
    replace_folder(out / "tokenizer", tokenizer.save_pretrained)
    manifest = Manifest(
        preset=preset.name,
        seed=seed,
        vocab_size=vocabulary_size(tokenizer),
        separator=separator(tokenizer),
        tokenizer_sha256=sha256_of(tokenizer_file(out)),
        domains={domain.name: _encode(out, tokenizer, domain) for domain in domains},
    )
    write_manifest(out, manifest)
    return manifest


def report(manifest: Manifest) -> Iterator[str]:
    """Lines to print: for each source, for each domain, and the totals."""
    for name, domain in manifest.domains.items():
        for source in domain.sources:
            yield (
                f"{source['name']}: {source['num_documents']} documents, "
                f"{source['num_refused']} refused (quote a prompt), "
                f"{source['num_duplicates']} duplicates"
            )
        yield f"{name}: {domain.num_tokens:,} tokens, {domain.num_held_out_tokens:,} held out"
    num_refused = sum(s["num_refused"] for d in manifest.domains.values() for s in d.sources)
    yield f"{num_refused} documents refused in all, vocabulary {manifest.vocab_size}"


def _read_domains(preset: Preset, inputs: Inputs, seed: int) -> list[Domain]:
    refused_lines = prompt_lines(inputs.prompts)
    if inputs.corpora is not None:
        return read_corpora(inputs.corpora, inputs.stdlib, refused_lines, seed)
    if not preset.own_corpus_bytes:
        raise ConfigError.of(
            "corpora", None, f"a folder of corpora; preset {preset.name} has none of its own"
        )
    return library_corpora(inputs.stdlib, preset.own_corpus_bytes, refused_lines, seed)


def _tokenizer(
    preset: Preset, inputs: Inputs, domains: Sequence[Domain]
) -> PreTrainedTokenizerBase:
    if inputs.tokenizer is not None:
        return open_tokenizer(inputs.tokenizer)
    texts = (text for each in domains for text in _up_to(each.documents, preset.tokenizer_bytes))
    return train_tokenizer(texts, preset.vocab_size, preset.max_position_embeddings)


def _up_to(documents: Sequence[str], num_bytes: int) -> Iterator[str]:
    for document in documents:
        if num_bytes <= 0:
            return
        yield document
        num_bytes -= len(document.encode())


def _encode(out: Path, tokenizer: PreTrainedTokenizerBase, domain: Domain) -> DomainTokens:
    ids = encode(tokenizer, domain.documents)
    if len(ids) < 2:
        raise ConfigError.of("corpora", domain.name, "a domain with text in it")
    begin = held_out_start(len(ids))
    return DomainTokens(
        num_tokens=len(ids),
        num_held_out_tokens=len(ids) - begin,
        num_held_out_bytes=int(byte_lengths(tokenizer)[ids[begin:]].sum()),
        sha256=write_domain(out, domain.name, ids),
        sources=tuple(_source_row(source) for source in domain.sources),
    )


def _source_row(source: CorpusFile) -> dict[str, Any]:
    is_library = source.name.endswith("/standard library")
    attribution = STANDARD_LIBRARY if is_library else ATTRIBUTIONS.get(source.name, UNLISTED)
    return {**asdict(source), **asdict(attribution)}
