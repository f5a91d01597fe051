"""Two hops: which letter does the partner of this letter lead to?"""

from __future__ import annotations

from typing import Any

import torch
from transformers import GPT2LMHeadModel

from attnwidgets.zoo.compiled.circuit import SHARP, GPT2Circuit, Residual
from attnwidgets.zoo.compiled.induction import before, most_common, next_letter
from attnwidgets.zoo.tokenizers import letter_tokenizer, require_alphabet, require_length
from attnwidgets.zoo.truth import Expected, Truth, all_equal


def two_hop(letters: str = "abcdefgh", length: int = 16) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GPT-2 that follows two links: "bc ab a" goes on with c.

    A text is a list of pairs, "ab" for "a leads to b", and a letter to begin with. Three layers of a single
    head: head 0.0 writes the previous token at every token; head 1.0 takes the first hop, from a to b; head
    2.0 takes the second, from b to c, with the output of head 1.0 as its query. Both hops are needed.

    Args:
        letters: The alphabet: 1 to 64 different visible characters.
        length: The most letters of a text, 1 to 64; spaces between pairs do not count.

    Returns:
        A `GPT2LMHeadModel` with `.truth`, and a tokenizer of letters that begins every text with `<s>`.

    Raises:
        ValueError: If `letters` is not an alphabet, or `length` is out of range.
        TypeError: If they are not a string and a whole number.

    Example:
        >>> model, tokenizer = aw.zoo.two_hop()
        >>> model.truth.answer("bc ef ab a")
        'c'
        >>> aw.trace(model, tokenizer, "bc ef ab a").predictions(1)[0].label
        'c'
    """
    require_alphabet(letters)
    require_length(length)
    tokens, positions = len(letters) + 1, length + 1
    residual = Residual(token=tokens, position=positions, previous=tokens, hop=tokens, out=tokens)
    circuit = GPT2Circuit(
        GPT2LMHeadModel,
        residual,
        tokens=tokens,
        positions=positions,
        layers=3,
        head_size=max(tokens + 1, positions),
    )
    token, position, previous, hop = (
        residual.read(name) for name in ("token", "position", "previous", "hop")
    )
    circuit.head(0, 0, query=SHARP * before(position), key=position, value=token, to=("previous",))
    # The second letter of a pair, at an even position, matches by its first; a first letter never does.
    result = previous - position[:, 1::2].sum(1, keepdim=True)
    result[:, -1] = 0
    # `<s>` answers every query by a half: heads rest there without a match.
    key = torch.cat([result, 0.5 * token[:, -1:]], 1)
    always = position.sum(1, keepdim=True)
    for layer, queried, to in ((1, token, "hop"), (2, hop, "out")):
        circuit.head(layer, 0, query=SHARP * torch.cat([queried, always], 1), key=key, value=token, to=(to,))
    circuit.answer(next_letter(residual))
    model = circuit.named("two_hop", letters=letters, length=length)
    model.truth = truth(letters, length)
    return model, letter_tokenizer(letters, length)


def truth(letters: str, length: int) -> Truth:
    """Return the `Truth` of the model."""
    lost = all_equal(len(letters) + 1)
    return Truth(
        name="two_hop",
        does="follows two links from the last letter: pairs such as 'ab' say that a leads to b",
        letters=letters,
        length=length,
        heads={
            (0, 0): "previous token",
            (1, 0): "first hop: finds, through head 0.0, where the letter leads",
            (2, 0): "second hop: finds where that leads, with what head 1.0 wrote as its query",
        },
        ablations=dict.fromkeys([(0, 0), (1, 0), (2, 0)], lost),
        rule=_expected,
    )


def _expected(text: str, at: int) -> Expected:
    """Follow two links from the letter at `at`; without an answer if the first leads to several letters."""
    first = _seconds(text, at, text[at - 1]) if at else []
    if len({text[i - 1] for i in first}) != 1:
        return Expected(None, {})
    second = _seconds(text, at, text[first[0] - 1])
    if not second:
        return Expected(None, {})
    why = {i - 1: "the letter, in a pair" for i in first} | dict.fromkeys(first, "where the first hop leads")
    why |= {i - 1: "the same, in the next pair" for i in second}
    why |= dict.fromkeys(second, "where the second hop leads, which is copied")
    why[at] = "the letter to begin with"
    return Expected(most_common(text[i - 1] for i in second), dict(sorted(why.items())))


def _seconds(text: str, at: int, first: str) -> list[int]:
    """Return the positions, up to `at`, of the letters that form a pair with `first` before them."""
    return [i for i in range(2, at + 1, 2) if text[i - 2] == first]
