"""Small tokenizers: byte level as in GPT-2 and Qwen, byte fallback as in Llama 2 and Mistral."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

TEXTS = ("def f(x):\n    return x + 1\n", "The fox ran home over the hills, the others behind it.")
END = "<|im_end|>"


def byte_level(unused: int = 0) -> PreTrainedTokenizerBase:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.add_special_tokens([END])
    tokenizer.add_tokens([f"unused{i}" for i in range(unused)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)


def byte_fallback() -> PreTrainedTokenizerBase:
    merges = _merges(" ".join(TEXTS).replace(" ", "\u2581"))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = sorted({one for pair in merges for one in "".join(pair)})
    tokens += [*letters, *("".join(pair) for pair in merges)]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )  # fmt: skip
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def _merges(text: str) -> Sequence[tuple[str, str]]:
    trained = Tokenizer(models.BPE())
    trained.train_from_iterator([text], BpeTrainer(vocab_size=120, show_progress=False))
    return [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    tokenizer.save_pretrained(folder)
    return folder
