"""Checks a request and turns it into a sequence; no model runs."""

from __future__ import annotations

import dataclasses
import secrets
import uuid
from collections.abc import Iterable, Mapping

from core.config import Request
from core.config.mechanisms import DRAFT_KINDS, draft_kind, verify_rule
from core.drafters import resolve_drafters
from core.errors import MODEL_FAULTS, ConfigError, ContextLengthError, one_line
from core.models.detokenize import Detokenizer, control_tokens_in, longest_token
from core.models.loading.load import LoadedModels
from core.plurals import number_of
from core.sequence import TokenSequence
from core.trees.noise import SeededNoise

__all__ = ["chat_tokens", "check", "prepare", "refuse_oversized"]

# A long prompt's beginning, CHARACTERS_A_TOKEN characters per token of the context, is tokenized
# first. Cutting the text there may add at most CUT_TOKENS tokens.
CHARACTERS_A_TOKEN, CUT_TOKENS = 8, 64
# The most characters of a rendered conversation.
MOST_RENDERED = 1 << 26


def check(models: LoadedModels, request: Request) -> None:
    """Raises ConfigError, and ContextLengthError for a prompt that is too long."""
    _prompt_tokens(models, request)
    _resolve_drafters(models, request)


def prepare(models: LoadedModels, request: Request) -> TokenSequence:
    """The request's sequence. Raises ConfigError, and ContextLengthError for a prompt that is too
    long."""
    llm = models.llm
    prompt_ids = _prompt_tokens(models, request)
    seed = request.sampling.seed
    if seed is None:
        # Drawn from the system: another part of the program may have seeded a global generator.
        seed = secrets.randbits(31)
    sampling = dataclasses.replace(request.sampling, seed=seed)
    speculation = request.speculation.resolve(sampling.temperature)
    detokenizer = Detokenizer(models.tokenizer, prompt_ids)
    return TokenSequence(
        run_id=uuid.uuid4().hex,
        request=request,
        sampling=sampling,
        speculation=dataclasses.replace(speculation, drafters=_resolve_drafters(models, request)),
        prompt_ids=prompt_ids,
        noise=SeededNoise(seed, llm.vocab_size, llm.device),
        detokenizer=detokenizer,
        eos_ids=frozenset() if sampling.ignore_eos else frozenset(models.eos_ids),
        context_length=llm.context_length,
        special_texts=detokenizer.special_texts,
        warnings=_warnings(models, request),
    )


def _warnings(models: LoadedModels, request: Request) -> tuple[str, ...]:
    # As in transformers and vLLM, the message is put into the template unchanged.
    if not request.chat or request.prompt_token_ids:
        return ()
    tokens = control_tokens_in(models.tokenizer, request.prompt)
    if not tokens:
        return ()
    return (
        f"the message spells control tokens ({', '.join(tokens)}): the LLM reads them as if the "
        "chat template had written them, so they may end the message or begin another",
    )


def refuse_oversized(models: LoadedModels, request: Request) -> None:
    """Raises ContextLengthError if a prompt without `prompt_token_ids` has more characters than the
    context can hold. The prompt is not tokenized: megabytes would take seconds."""
    count, context = len(request.prompt), models.llm.context_length
    if count <= context or request.prompt_token_ids:
        return
    most = context * longest_token(models.tokenizer)
    if count > most:
        name = models.llm.info.name
        raise ContextLengthError(
            f"prompt is {number_of(count, 'character')} long: the context of {name} is "
            f"{number_of(context, 'token')}, which hold at most {most}"
        )


def _refuse_by_beginning(models: LoadedModels, text: str) -> None:
    context, name = models.llm.context_length, models.llm.info.name
    beginning = text[: context * CHARACTERS_A_TOKEN]
    if len(beginning) == len(text):
        return
    count = len(_tokens_of(models, beginning))
    if count > context + CUT_TOKENS:
        raise ContextLengthError(
            f"prompt is more than {number_of(count - CUT_TOKENS, 'token')} long: the "
            f"context of {name} is {number_of(context, 'token')}, and one must be left for an "
            "answer"
        )


def _resolve_drafters(models: LoadedModels, request: Request) -> tuple[str, ...]:
    speculation = request.speculation.resolve(request.sampling.temperature)
    names = resolve_drafters(speculation.drafters, models.drafter_names, models.user_drafters)
    on_nodes = [info.name for info in models.remote if info.name in names]
    if on_nodes and verify_rule(speculation.verify).reads_q:
        raise ConfigError.must_be(
            "verify",
            speculation.verify,
            f"greedy or match with drafters on nodes ({', '.join(on_nodes)}): it reads the "
            "probability of every token at every node of a draft, which nodes do not send",
        )
    if on_nodes and draft_kind(speculation.draft).drawn:
        allowed = [name for name, kind in DRAFT_KINDS.items() if not kind.drawn]
        raise ConfigError.of(
            "draft",
            speculation.draft,
            f"{', '.join(allowed)} with drafters on nodes ({', '.join(on_nodes)})",
        )
    return names


def _prompt_tokens(models: LoadedModels, request: Request) -> tuple[int, ...]:
    llm = models.llm
    refuse_oversized(models, request)
    prompt_ids = _tokenize(models, request)
    if len(prompt_ids) >= llm.context_length:
        raise ContextLengthError(
            f"prompt is {number_of(len(prompt_ids), 'token')} long: the context of "
            f"{llm.info.name} is {number_of(llm.context_length, 'token')}, and one must be "
            "left for an answer"
        )
    return prompt_ids


def _tokenize(models: LoadedModels, request: Request) -> tuple[int, ...]:
    if request.prompt_token_ids:
        _check_vocabulary(models, request.prompt_token_ids)
        return request.prompt_token_ids
    if request.chat:
        return chat_tokens(models, [{"role": "user", "content": request.prompt}])
    _refuse_by_beginning(models, request.prompt)
    ids = _tokens_of(models, request.prompt)
    if not ids:
        raise ConfigError.must_be("prompt", request.prompt, "a text of at least one token")
    return tuple(int(token_id) for token_id in ids)


def chat_tokens(models: LoadedModels, messages: Iterable[Mapping[str, str]]) -> tuple[int, ...]:
    """The tokens of the messages in the LLM's chat template. Raises ConfigError without a template,
    or if the template or the tokenizer fails, or the template renders nothing. Raises
    ContextLengthError only for a very long text."""
    tokenizer = models.tokenizer
    if not tokenizer.chat_template:
        raise ConfigError.must_be(
            "chat", True, f"false, since {models.llm.info.name} has no chat template"
        )
    longest = min(models.llm.context_length * longest_token(tokenizer), MOST_RENDERED)
    try:
        text = models.templates.render(
            tokenizer.get_chat_template(), messages, tokenizer.special_tokens_map, longest
        )
    except ContextLengthError:
        raise  # not the template's fault
    except MODEL_FAULTS as error:
        raise _chat_error(models, f"fails ({one_line(error)})") from error
    _refuse_by_beginning(models, text)
    # The template has already written the special tokens.
    ids = _tokens_of(models, text, add_special_tokens=False)
    if not ids:
        raise _chat_error(models, "renders nothing")
    return tuple(int(token_id) for token_id in ids)


def _tokens_of(models: LoadedModels, text: str, **options: bool) -> list[int]:
    try:
        # Not verbose: no warning of a long prompt.
        with models.tokenizing:
            ids: list[int] = models.tokenizer(text, verbose=False, **options)["input_ids"]
    except MODEL_FAULTS as error:
        name, reason = models.llm.info.name, one_line(error)
        allowed = f"a text that the tokenizer of {name} takes ({reason})"
        raise ConfigError.must_be("prompt", text, allowed) from error
    return ids


def _chat_error(models: LoadedModels, fault: str) -> ConfigError:
    name = models.llm.info.name
    return ConfigError.must_be("chat", True, f"false, since the chat template of {name} {fault}")


def _check_vocabulary(models: LoadedModels, token_ids: tuple[int, ...]) -> None:
    size = models.llm.vocab_size
    if (largest := max(token_ids)) >= size:
        raise ConfigError.must_be("prompt_token_ids", largest, f"ids from 0 to {size - 1}")
