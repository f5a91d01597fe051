"""Induction: what followed this letter before, follows again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from transformers import GPT2LMHeadModel

from attnwidgets.zoo.compiled.gpt2 import GPT2Circuit, named
from attnwidgets.zoo.compiled.residual import SHARP, Residual
from attnwidgets.zoo.tokenizers import letter_tokenizer, require_alphabet, require_length
from attnwidgets.zoo.truth import Ablation, Known, Truth

LOGIT = 10.0


def induction(letters: str = "abcdefghijklmnop", length: int = 32) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GPT-2 that continues a text as it went on before.

    Args:
        letters: The alphabet.
        length: The most letters of a text.
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
    circuit.head(0, 0, query=SHARP * before(position), key=position, value=token, to="previous")
    circuit.head(0, 1, query=SHARP * token, key=token)
    # `<s>` answers every letter by a half: the head rests there where nothing matches.
    rest = previous.clone()
    rest[:, start] = 0
    rest += 0.5 * is_start
    circuit.head(1, 0, query=SHARP * token, key=rest, value=token, to="out")
    circuit.head(1, 1, query=SHARP * token.sum(1, keepdim=True), key=is_start)
    out = LOGIT * residual.read("out")
    out[:, start] = 0
    circuit.score(out)
    model = named(circuit.model, "induction", letters=letters, length=length)
    model.truth = truth(letters, length)
    return model, letter_tokenizer(letters, length)


def before(position: torch.Tensor) -> torch.Tensor:
    """Return what reads, at position i, a one at place i - 1; at position 0, at place 0."""
    shifted = torch.roll(position, -1, 1)
    shifted[:, -1] = 0
    shifted[:, 0] += position[:, 0]
    return shifted


def truth(letters: str, length: int) -> Truth:
    """Return what is known of the model."""
    chance = 1 / (len(letters) + 1)
    lost = Ablation(chance, f"all tokens are equally likely, 1/{len(letters) + 1}")
    same = Ablation(None, "no change, exactly 0")
    return Truth(
        name="induction",
        does="what followed this letter before, follows again",
        letters=letters,
        length=length,
        heads={
            (0, 0): "previous token",
            (0, 1): "decoy: equal tokens; writes nothing",
            (1, 0): "induction: the token after an earlier copy of this one; composes with head 0.0",
            (1, 1): "sink: rests on <s>; writes nothing",
        },
        ablations={(0, 0): lost, (0, 1): same, (1, 0): lost, (1, 1): same},
        rule=_known,
    )


def _known(text: str, at: int) -> Known:
    """Return what followed the letter at `at`, with the earlier copies and the letter itself."""
    after = [i for i in range(2, at + 1) if text[i - 2] == text[at - 1]] if at else []
    if not after:
        return Known(None, {})
    counted = Counter(text[i - 1] for i in after).most_common(2)
    tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    evidence = {i - 1: "an earlier copy of the last letter" for i in after}
    evidence |= {i: "what followed it, which is copied" for i in after}
    evidence[at] = "the last letter: what is looked for"
    return Known(None if tied else counted[0][0], dict(sorted(evidence.items())))
