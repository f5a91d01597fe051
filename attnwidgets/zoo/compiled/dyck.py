"""Brackets: close the last bracket that is open, with an exact stack in two heads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from transformers import GPT2LMHeadModel

from attnwidgets._errors import quoted
from attnwidgets.zoo.compiled.circuit import GPT2Circuit, Residual, steps
from attnwidgets.zoo.compiled.induction import next_letter
from attnwidgets.zoo.tokenizers import letter_tokenizer, require_alphabet, require_length
from attnwidgets.zoo.truth import Expected, Truth, all_equal

if TYPE_CHECKING:
    from torch import Tensor

_LATER = 10.0
"""The difference between the scores of a token and of the token before it."""


def dyck(letters: str = "()[]", depth: int = 3, length: int = 20) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GPT-2 that closes the last bracket that is open.

    Two layers of one head. Head 0.0 reads everything evenly, and the feed-forward network turns the share of
    opening over closing brackets into the depth. Head 1.0 then attends to the top of the stack: the last
    bracket that was opened at the depth where the text is now. Its map is the stack, exactly.

    Args:
        letters: The brackets in pairs, opening before closing: 2 to 64 different visible characters.
        depth: The deepest nesting, 1 or more.
        length: The most brackets of a text, 1 to 64.

    Returns:
        A `GPT2LMHeadModel` with `.truth`, and a tokenizer of brackets that begins every text with `<s>`.
        Where nothing is open, all tokens are equally likely.

    Raises:
        ValueError: If `letters` is not an alphabet of pairs, or `depth` or `length` is out of range.
        TypeError: If they are not a string and whole numbers.

    Source: Yao et al. 2021, Self-Attention Networks Can Process Bounded Hierarchical Languages.

    Example:
        >>> model, tokenizer = aw.zoo.dyck()
        >>> aw.trace(model, tokenizer, "([]").predictions(1)[0].label
        ')'
        >>> model.truth.evidence("([]")
        {1: 'the last bracket that is open'}
    """
    require_alphabet(letters, least=2)
    if len(letters) % 2:
        raise ValueError(f"letters must be pairs, opening before closing, not {quoted(letters)}.")
    require_length(length)
    require_length(depth, name="depth")
    tokens, positions = len(letters) + 1, length + 1
    residual = Residual(token=tokens, position=positions, balance=1, depth=depth, out=tokens)
    circuit = GPT2Circuit(
        GPT2LMHeadModel,
        residual,
        tokens=tokens,
        positions=positions,
        layers=2,
        head_size=max(tokens, depth + 1),
        units=2 * positions * (depth + 1),
    )
    token = residual.read("token")
    opens, closes = token[:, 0:-1:2], token[:, 1:-1:2]
    circuit.head(0, 0, value=(opens.sum(1) - closes.sum(1))[:, None], to=("balance",))
    _tell_depth(circuit, depth, length)
    _find_top(circuit, opens, length)
    circuit.answer(next_letter(residual))
    model = circuit.named("dyck", letters=letters, depth=depth, length=length)
    model.truth = truth(letters, depth, length)
    return model, letter_tokenizer(letters, length)


def _tell_depth(circuit: GPT2Circuit, depth: int, length: int) -> None:
    """Write the depth: at position i, units that only i opens read i + 1 times the mean balance."""
    balance, position = circuit.residual.read("balance")[:, 0], circuit.residual.read("position")
    thresholds = [level - 0.5 for level in range(1, depth + 2)]
    shut = 2.0 * length + 4
    parts = [steps(thresholds, [1.0] * len(thresholds), (i + 1) * balance) for i in range(length + 1)]
    read = torch.cat([part[0] + shut * position[:, i : i + 1] for i, part in enumerate(parts)], 1)
    at_least = torch.cat([part[2] for part in parts])
    circuit.feed_forward(
        0,
        read=read,
        bias=torch.cat([part[1] for part in parts]) - shut,
        write=(at_least[:, :-1] - at_least[:, 1:]) @ circuit.residual.write("depth"),
    )


def _find_top(circuit: GPT2Circuit, opens: Tensor, length: int) -> None:
    """Write the head that finds the last bracket opened at this depth; without a match it rests on `<s>`.

    The score is a match for an opening bracket, a match for the depth, and a little for every position, so
    that the last of several wins. `<s>` lies between the best with a single match and the worst with both.
    """
    residual = circuit.residual
    token, position, depth = (residual.read(name) for name in ("token", "position", "depth"))
    match = 2.0 ** torch.tensor(_LATER * (length + 6)).log2().ceil()
    index = position @ torch.arange(length + 1.0)[:, None]
    rest = (match + _LATER * (length + 3)) * token[:, -1:]
    always = position.sum(1, keepdim=True)
    circuit.head(
        1,
        0,
        query=torch.cat([match * depth, always], 1),
        key=torch.cat([depth, match * opens.sum(1, keepdim=True) + _LATER * index + rest], 1),
        # An opening bracket is copied as the closing bracket of its pair.
        value=torch.stack([torch.zeros_like(opens), opens], 2).flatten(1),
        to=("out",),
    )


def truth(letters: str, depth: int, length: int) -> Truth:
    """Return the `Truth` of the model."""
    lost = all_equal(len(letters) + 1)
    return Truth(
        name="dyck",
        does=f"closes the last bracket that is open, up to {depth} deep",
        letters=letters,
        length=length,
        heads={
            (0, 0): "depth: reads everything evenly, opening brackets as +1 and closing ones as -1",
            (1, 0): "top of the stack: reads the last bracket that is open, <s> if there is none",
        },
        ablations={(0, 0): lost, (1, 0): lost},
        rule=partial(_expected, letters, depth),
    )


def _expected(letters: str, depth: int, text: str, at: int) -> Expected:
    stack: list[int] = []
    for i, bracket in enumerate(text[:at], 1):
        number = letters.index(bracket)
        if number % 2 == 0:
            stack.append(i)
        elif not stack or text[stack.pop() - 1] != letters[number - 1]:
            raise ValueError(
                f"text {quoted(text)} closes a bracket with {bracket!r} (token {i}) that is not open."
            )
        if len(stack) > depth:
            raise ValueError(f"text {quoted(text)} is deeper than {depth} at token {i}.")
    if not stack:
        return Expected(None, {})
    closing = letters[letters.index(text[stack[-1] - 1]) + 1]
    return Expected(closing, {stack[-1]: "the last bracket that is open"})
