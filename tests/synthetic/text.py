"""The vocabulary of SYNTHETIC runs, its tokenizer, and logits.

The next token depends on the seed, the position and the last token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bench.table_model import Context

PROSE = "the river ran past old mill and into town where nobody had seen a fox since winter"
CODE = "def shift ( left , right ) : return left + right ; She said yes . No one knew why"
PROMPT = "prompt Once upon time"
WORDS = ("\n", *dict.fromkeys(f" {word}" for word in f"{PROSE} {CODE}".split()))
END, START = b"<|endoftext|>", b"SYNTHETIC"
FIRST_WORD = 2
CHARACTERS = ("é", "—", "狐", "🦊")

HOSTILE_TEXTS = (
    "<img src=x onerror=\"globalThis.pwned='img'\">",
    "</script><script>globalThis.pwned='script'</script>",
    "${globalThis.pwned='template'}",
    r"\u{zz}",
    "{{value}}{% raw %}`",
    "\u202eright to left\u2066 isolate\u200f",
    "\x1b[31mred\x07\x08\x7f\x85",
    "nul\x00inside",
    "\x00",
    "\r\n\t\v\f\u2028\u2029",
    "e" + "\u0301" * 40,
    "&lt;&#39;\"'--;DROP TABLE runs;/*",
    "\ufeff\u200b\u00ad",
    "x" * 3000,
)

RIVALS = 3
SKILLS = (65, 60, 50)  # how many of 100 tokens an SSM gets right, by its number
LLM_SCORES = (8.0, 6.2, 5.6, 5.0)  # the likeliest tokens' logits, before the factor `sharpness`
SSM_SCORES = (7.5, 6.5, 5.8, 5.0)


@cache
def vocabulary(hostile: bool) -> tuple[bytes, ...]:
    """Bytes by token id. Each of CHARACTERS takes two tokens of invalid UTF-8."""
    prompt = (f" {word}" for word in PROMPT.split())  # not in generated texts
    words = [END, START, *map(str.encode, (*WORDS, *prompt))]
    for character in CHARACTERS:
        encoded = character.encode()
        words += [encoded[:1], encoded[1:]]
    words += [text.encode() for text in HOSTILE_TEXTS if hostile]
    single_bytes = (bytes([i]) for i in range(256))
    return tuple(dict.fromkeys((*words, *single_bytes)))


# From each character's first token to its second.
TRAILS = MappingProxyType(
    {
        vocabulary(False).index(encoded[:1]): vocabulary(False).index(encoded[1:])
        for encoded in map(str.encode, CHARACTERS)
    }
)


@cache
def tokenizer(hostile: bool) -> Any:
    scores = [
        ("".join(map(_letter, token)), -1.0 if len(token) > 1 else -2.0)
        for token in vocabulary(hostile)
    ]
    core = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=False))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=core, eos_token=END.decode())


def _letter(byte: int) -> str:
    """The character that stands for a byte in byte-level tokenizers."""
    hidden = [*range(33), *range(127, 161), 173]
    return chr(256 + hidden.index(byte)) if byte in hidden else chr(byte)


@dataclass(frozen=True, slots=True)
class Language:
    seed: int
    hostile: bool

    def likeliest(self, context: Context) -> tuple[int, ...]:
        """The LLM's own next token, then RIVALS other tokens."""
        return _likeliest(self.seed, self.hostile, len(context), context[-1])

    def guesses(self, number: int, context: Context) -> tuple[int, ...]:
        """The tokens of `likeliest`, in the order of SSM number `number`."""
        own, *rivals = self.likeliest(context)
        draw = hash((self.seed, number, len(context), context[-1]))
        if draw % 100 < SKILLS[number % len(SKILLS)]:
            return own, *rivals
        shift = draw // 100 % RIVALS
        wrong = [*rivals[shift:], *rivals[:shift]]
        wrong.insert(1 + draw // 300 % RIVALS, own)
        return tuple(wrong)

    def llm(self, context: Context) -> torch.Tensor:
        """Logits (V,) after a context."""
        return self._row(self.likeliest(context), LLM_SCORES, context)

    def ssm(self, number: int) -> Callable[[Context], torch.Tensor]:
        return lambda context: self._row(self.guesses(number, context), SSM_SCORES, context)

    def _row(
        self, tokens: tuple[int, ...], scores: tuple[float, ...], context: Context
    ) -> torch.Tensor:
        row = np.zeros(len(vocabulary(self.hostile)), dtype=np.float32)
        sharpness = 1 + 0.02 * (hash((self.seed, *context[-2:])) % 8)
        for token, score in zip(tokens, scores, strict=True):
            row[token] = sharpness * score
        return torch.from_numpy(row)


@lru_cache(maxsize=1 << 14)
def _likeliest(seed: int, hostile: bool, length: int, last: int) -> tuple[int, ...]:
    draw = hash((seed, length, last))
    words = range(FIRST_WORD, FIRST_WORD + len(WORDS))
    kind, draw = draw % 100, draw // 100
    if last in TRAILS:
        own = TRAILS[last]
    elif hostile and kind < 20:
        own = vocabulary(True).index(HOSTILE_TEXTS[draw % len(HOSTILE_TEXTS)].encode())
    elif kind >= 85:
        own = list(TRAILS)[draw % len(TRAILS)]
    else:
        own = words[draw % len(words)]
    rivals = (words[(draw // 64 + 7 * i) % len(words)] for i in range(RIVALS + 1))
    return own, *[token for token in rivals if token != own][:RIVALS]
