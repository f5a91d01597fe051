"""A character model of *Alice's Adventures in Wonderland*, with heads that do induction.

The book (`aw.demo_book()`, public domain) has 140,000 characters, few enough to learn by heart. Two things
prevent this: dropout, and made-up names that replace names of the book in part of the passages. Random
letters that repeat are read as well; they can be continued only by looking back, which teaches induction.
"""

from __future__ import annotations

import itertools
import math
import re
import string
from functools import cache
from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.demo.texts import demo_book
from attnwidgets.zoo.train.recipe import Recipe, Schedule

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

ALPHABET = "\n !\"'(),-.:;?" + string.ascii_lowercase
LENGTH = 143
"""Characters that the model reads; with `<s>` 144 tokens."""

_BATCH, _DROPOUT = 16, 0.1
_STAGES = ((900, 0.4, 0.08, False), (600, 0.3, 0.3, False), (600, 0.25, 0.55, False), (420, 0.4, 0.4, True))
"""Steps, share of passages with made-up names, share of random letters that repeat, whether these are few.

Spelling is learned first. Heads that do induction then appear within some hundred steps of much noise. The
package's weights were trained in these stages, each of which began the optimizer anew.
"""
_NOISE = string.ascii_lowercase + " "
_WORD = 0.7
"""Share of the passages that begin at the start of a word, as typed texts do."""

# The words that made-up names replace: characters of the book, and things that are often named.
_NAMES = re.compile(
    r"\b(alice|rabbit|queen|king|hatter|gryphon|turtle|duchess|dormouse|caterpillar|mouse|cat|dodo|bill|dinah|"
    r"hare|knave|footman|cook|pigeon|baby|puppy|lory|eaglet|duck|jury|gardener|soldiers|door|table|garden|house|"
    r"bottle|key|lobster|owl|panther|whiting|sister|head|tea|court|voice|moment|thing)\b"
)
_ONSETS = tuple("b c d f g h j k l m n p r s t v w z br cr dr fl gl gr pl sk st tr th sh qu".split())  # noqa: SIM905
_VOWELS = tuple("a e i o u a e i o u oo ee ai y".split())  # noqa: SIM905
_CODAS = [*"bdgklmnprstxz", "", "", "", "nd", "rk", "sh", "ck"]


@cache
def book() -> tuple[str, str]:
    """Return the book in the model's alphabet: the training text, and the last twelfth of every chapter."""
    chapters: list[list[str]] = []
    for paragraph in demo_book():
        if paragraph.startswith("CHAPTER "):
            chapters.append([])
        chapters[-1].append("".join(c for c in paragraph.lower() if c in ALPHABET))
    learned: list[str] = []
    held_out: list[str] = []
    for chapter in chapters:
        before, whole = 0, sum(map(len, chapter))
        for paragraph in chapter:
            (learned if before < whole * 11 / 12 else held_out).append(paragraph)
            before += len(paragraph)
    return "\n".join(learned), "\n".join(held_out)


def made_up_name(rng: random.Random) -> str:
    """Return a name of one to three syllables, at most ten letters."""
    syllables = rng.choice((1, 2, 2, 2, 3))
    parts = (rng.choice(kind) for _ in range(syllables) for kind in (_ONSETS, _VOWELS, _CODAS))
    return "".join(parts)[:10]


def passage(rng: random.Random, renamed: float, repeated: float, *, few_letters: bool) -> str:
    """Return `LENGTH` characters to learn from: of the book, of the book with made-up names, or of noise.

    Args:
        rng: Chooses.
        renamed: Share of passages with made-up names.
        repeated: Share of random letters that repeat.
        few_letters: Repeat few different letters, so that a letter alone does not determine the next.
    """
    kind = rng.random()
    if kind < repeated:
        period = rng.randint(6, 28)
        some = rng.sample(_NOISE, rng.randint(3, len(_NOISE)) if few_letters else len(_NOISE))
        once = "".join(rng.choices(some, k=period))
        return (once * (LENGTH // period + 1))[:LENGTH]
    text, _ = book()
    start = rng.randrange(len(text) - 3 * LENGTH)
    if rng.random() < _WORD:
        start = text.index(" ", start) + 1
    if kind < 1 - renamed:
        return text[start : start + LENGTH]
    names = [made_up_name(rng) for _ in range(rng.choice((1, 1, 2)))]
    chosen: dict[str, str] = {}
    written = _NAMES.sub(
        lambda match: chosen.setdefault(match[0], rng.choice(names)), text[start : start + 2 * LENGTH]
    )
    return written[:LENGTH]


def build(tokenizer: Any) -> Any:
    """Return an untrained Llama with dropout behind its embeddings, attention and feed-forward layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=24,
        max_position_embeddings=LENGTH + 1,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
        pad_token_id=None,
        initializer_range=0.05,
    )
    model = LlamaForCausalLM(config)

    def drop(module: Any, _: Any, output: Any) -> Any:
        return torch.nn.functional.dropout(output, _DROPOUT, module.training)

    blocks = [part for layer in model.model.layers for part in (layer.mlp, layer.self_attn.o_proj)]
    for module in (model.model.embed_tokens, *blocks):
        module.register_forward_hook(drop)
    return model


def loss(model: Any, tokenizer: Any, rng: random.Random) -> Callable[[], Any]:
    """Return the cross-entropy of every next character; the mixture of texts changes from stage to stage."""
    import torch

    stages = [(renamed, repeated, few) for steps, renamed, repeated, few in _STAGES for _ in range(steps)]
    number = itertools.count()

    def next_loss() -> Any:
        renamed, repeated, few = stages[min(next(number), len(stages) - 1)]
        texts = [passage(rng, renamed, repeated, few_letters=few) for _ in range(_BATCH)]
        ids = tokenizer(texts, return_tensors="pt")["input_ids"]
        logits = model(input_ids=ids).logits[:, :-1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return next_loss


def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Return bits per character on held-out and on training text, and those of counts of n-grams.

    "made-up names" is the share of letters after the first that are guessed right where a name that is new
    stands for the second or third time; "random letters" the same where 24 random letters repeat.
    """
    learned, held_out = book()
    return {
        "bits a character, held out": bits(model, tokenizer, held_out),
        "bits a character, learned": bits(model, tokenizer, learned[: len(held_out)]),
        "bits a character, held out, n-grams": n_gram_bits(learned, held_out),
        "accuracy, made-up names": _names_repeated(model, tokenizer),
        "accuracy, random letters": _letters_repeated(model, tokenizer),
    }


def bits(model: Any, tokenizer: Any, text: str) -> float:
    """Return bits per character, each with half the model's length of text or more before it."""
    import torch

    half = LENGTH // 2
    windows = [text[start : start + LENGTH] for start in range(0, len(text) - LENGTH, half)]
    total, count = 0.0, 0
    for start in range(0, len(windows), 16):
        ids = tokenizer(windows[start : start + 16], return_tensors="pt")["input_ids"]
        with no_grad():
            logits = model(input_ids=ids).logits[:, half:-1]
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), ids[:, half + 1 :].flatten(), reduction="none"
        )
        total, count = total + float(losses.sum()), count + losses.numel()
    return total / count / math.log(2)


def n_gram_bits(learned: str, held_out: str, order: int = 6) -> float:
    """Return bits per character of counts of up to `order` characters, interpolated (Witten and Bell 1991).

    The probability after a context is mixed with that after the context without its first character, by how
    many different characters have followed it.
    """
    counts: list[dict[str, dict[str, int]]] = [{} for _ in range(order)]
    for index, character in enumerate(learned):
        for before in range(min(order, index + 1)):
            follows = counts[before].setdefault(learned[index - before : index], {})
            follows[character] = follows.get(character, 0) + 1
    total = 0.0
    for index in range(order, len(held_out)):
        probability = 1 / len(ALPHABET)
        for before in range(order):
            follows = counts[before].get(held_out[index - before : index], {})
            if not follows:
                break
            seen, kinds = sum(follows.values()), len(follows)
            probability = (follows.get(held_out[index], 0) + kinds * probability) / (seen + kinds)
        total -= math.log2(probability)
    return total / (len(held_out) - order)


_WITH_NAMES = (
    "'oh dear!' said the {0}, and the little girl looked at the {0}",
    "the {0} sighed deeply. 'i never was so small before,' said the {0}",
    "there was a {0} in the garden, and alice went up to the {0}",
)


def _names_repeated(model: Any, tokenizer: Any) -> float:
    import random

    rng = random.Random(5)  # noqa: S311
    right = total = 0
    for number in range(90):
        name = made_up_name(rng)
        ids = tokenizer(_WITH_NAMES[number % 3].format(name), return_tensors="pt")["input_ids"]
        with no_grad():
            guessed = model(input_ids=ids).logits[0, -len(name) : -1].argmax(-1)
        right += int((guessed == ids[0, 1 - len(name) :]).sum()) if len(name) > 1 else 0
        total += len(name) - 1
    return right / total


def _letters_repeated(model: Any, tokenizer: Any, period: int = 24) -> float:
    import random

    rng = random.Random(3)  # noqa: S311
    texts = ["".join(rng.choices(string.ascii_lowercase, k=period)) * 3 for _ in range(64)]
    ids = tokenizer(texts, return_tensors="pt")["input_ids"]
    with no_grad():
        guessed = model(input_ids=ids).logits[:, period + 1 : -1].argmax(-1)
    return float((guessed == ids[:, period + 2 :]).float().mean())


def heads(model: Any, tokenizer: Any) -> dict[tuple[int, int], str]:
    """Return the heads that put a quarter of their weight on the previous token, or where induction looks."""
    from attnwidgets.zoo.train.induction import head_scores

    roles = {}
    for where, scores in head_scores(model, tokenizer).items():
        role = max(scores, key=lambda name: scores[name])
        if scores[role] >= 0.25:  # noqa: PLR2004
            roles[where] = f"{role} ({scores[role]:.2f} of its attention on letters that repeat)"
    return roles


RECIPE = Recipe(
    name="alice",
    task="continues a text in the manner of the book, in lower case, and random letters that repeat",
    tokenizer={"kind": "characters", "alphabet": ALPHABET, "length": LENGTH, "lower": True},
    build=build,
    loss=loss,
    measure=measure,
    heads=heads,
    schedule=Schedule(steps=2_520, rate=3e-3, warm_up=60, hold=1_500, decay=0.1),
)
