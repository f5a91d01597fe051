"""Induction: what followed this letter before, follows again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from transformers import GPT2LMHeadModel

from attnwidgets.zoo.compiled.circuit import LOGIT, SHARP, GPT2Circuit, Residual
from attnwidgets.zoo.tokenizers import letter_tokenizer, require_alphabet, require_length
from attnwidgets.zoo.truth import NOTHING, Expected, Truth, all_equal

if TYPE_CHECKING:
    from torch import Tensor


def induction(letters: str = "abcdefghijklmnop", length: int = 32) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GPT-2 that continues a text as it went on before.

    Two layers of two heads, and no feed-forward network. Head 0.0 writes the previous token at every token.
    Head 1.0 looks for the token that came after an earlier copy of the last token, and copies it (Elhage et
    al. 2021, "induction head"). Head 0.1 attends to equal tokens and writes nothing; head 1.1 rests on `<s>`.
    If a letter was followed by several, each has its share of the logit.

    Args:
        letters: The alphabet: 1 to 64 different visible characters.
        length: The most letters of a text, 1 to 64.

    Returns:
        A `GPT2LMHeadModel` with `.truth`, and a tokenizer of letters that begins every text with `<s>`.

    Raises:
        ValueError: If `letters` is not an alphabet, or `length` is out of range.
        TypeError: If they are not a string and a whole number.

    Source: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Olsson et al. 2022.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> trace = aw.trace(model, tokenizer, "fadebcfadeb")
        >>> trace.predictions(1)[0].label, model.truth.answer("fadebcfadeb")
        ('c', 'c')
        >>> list(model.truth.evidence("fadebcfadeb"))
        [5, 6, 11]
    """
    require_alphabet(letters)
    require_length(length)
    tokens, positions = len(letters) + 1, length + 1
    start = tokens - 1
    residual = Residual(token=tokens, position=positions, previous=tokens, out=tokens)
    circuit = GPT2Circuit(
        GPT2LMHeadModel,
        residual,
        tokens=tokens,
        positions=positions,
        layers=2,
        heads=2,
        head_size=max(tokens, positions),
    )
    token, position, previous = (residual.read(name) for name in ("token", "position", "previous"))
    is_start = token[:, start:]
    circuit.head(0, 0, query=SHARP * before(position), key=position, value=token, to=("previous",))
    circuit.head(0, 1, query=SHARP * token, key=token)
    # `<s>` answers every letter by a half: the head rests there where nothing matches.
    result = previous.clone()
    result[:, start] = 0
    circuit.head(1, 0, query=SHARP * token, key=result + 0.5 * is_start, value=token, to=("out",))
    circuit.head(1, 1, query=SHARP * token.sum(1, keepdim=True), key=is_start)
    circuit.answer(next_letter(residual))
    model = circuit.named("induction", letters=letters, length=length)
    model.truth = truth(letters, length)
    return model, letter_tokenizer(letters, length)


def before(position: Tensor) -> Tensor:
    """Return the weights that read, at position i, the coordinate of i - 1, and at position 0 that of 0."""
    shifted = torch.roll(position, -1, 1)
    shifted[:, -1] = 0
    shifted[:, 0] += position[:, 0]
    return shifted


def next_letter(residual: Residual) -> Tensor:
    """Return the weights of the logits [coordinate, token], from the block "out"; `<s>` never comes next."""
    read = LOGIT * residual.read("out")
    read[:, -1] = 0
    return read


def truth(letters: str, length: int) -> Truth:
    """Return the `Truth` of the model."""
    lost = all_equal(len(letters) + 1)
    return Truth(
        name="induction",
        does="what followed this letter before, follows again",
        letters=letters,
        length=length,
        heads={
            (0, 0): "previous token",
            (0, 1): "decoy: attends to equal tokens, writes nothing",
            (1, 0): "induction: finds, through head 0.0, what came after an earlier copy, and copies it",
            (1, 1): "sink: rests on <s>, writes nothing",
        },
        ablations={(0, 0): lost, (0, 1): NOTHING, (1, 0): lost, (1, 1): NOTHING},
        rule=_expected,
    )


def _expected(text: str, at: int) -> Expected:
    after = [i for i in range(2, at + 1) if text[i - 2] == text[at - 1]]
    if not after:
        return Expected(None, {})
    why = dict.fromkeys((i - 1 for i in after), "an earlier copy of the letter")
    why |= dict.fromkeys(after, "what followed it, which is copied")
    why[at] = "the letter that is looked for"
    return Expected(most_common(text[i - 1] for i in after), dict(sorted(why.items())))


def most_common(letters: Any) -> str | None:
    """Return the most common letter; None if two are."""
    best = Counter(letters).most_common(2)
    return None if len(best) > 1 and best[0][1] == best[1][1] else best[0][0]
