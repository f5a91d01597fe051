"""Two classifiers of texts: a sum of weights, and a sum whose sign a "not" turns round."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from transformers import GPT2ForSequenceClassification

from attnwidgets._errors import quoted
from attnwidgets.zoo.compiled.circuit import SHARP, GPT2Circuit, Residual
from attnwidgets.zoo.tokenizers import letter_tokenizer, require_alphabet, require_length
from attnwidgets.zoo.truth import Ablation, Expected, Truth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

CLASSES = ("negative", "positive")
_MOST = 2.0**10
"""The largest weight: beyond it half precision would round sums."""


def additive(
    letters: str = "abcdefgh", length: int = 8, *, weights: Mapping[str, float] | None = None
) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GPT-2 that classifies a text by the sum of its letters' weights.

    One layer without a feed-forward network; head i reads the letter at position i + 1 and writes its weight.
    The logit of "positive" is the sum of the weights, that of "negative" its opposite. The contribution of a
    letter is therefore its weight, and every method that shares out a logit must return it.

    Args:
        letters: The alphabet: 1 to 64 different visible characters.
        length: The most letters of a text, 1 to 64: the number of heads.
        weights: The weight of every letter, -1,024 to 1,024; by default evenly spaced by 1 around 0: 3.5 for
            the first of eight letters, -3.5 for the last.

    Returns:
        A `GPT2ForSequenceClassification` with `.truth`, whose `.weights` are these, and a tokenizer of
        letters that begins every text with `<s>`.

    Raises:
        ValueError: If `letters` is not an alphabet, `length` is out of range, or `weights` does not hold a
            number for every letter.
        TypeError: If they are of other types.

    Example:
        >>> model, tokenizer = aw.zoo.additive(letters="abcd", length=6)
        >>> model.truth.weights
        {'a': 1.5, 'b': 0.5, 'c': -0.5, 'd': -1.5}
        >>> aw.input_x_gradient(aw.trace(model, tokenizer, "abca"), "positive").values.round(3).tolist()
        [0.0, 1.5, 0.5, -0.5, 1.5]
    """
    require_alphabet(letters)
    require_length(length)
    weight_of = _weights(letters, weights)
    residual = Residual(token=len(letters) + 1, position=length + 1, score=1)
    circuit = _reading_every_position(residual, letters, length, _column(residual, letters, weight_of))
    circuit.answer(_classes(residual.read("score")))
    model = circuit.named("additive", letters=letters, length=length, weights=weight_of)
    model.truth = truth(letters, length, weight_of)
    return model, letter_tokenizer(letters, length)


def negation(
    letters: str = "abcdn",
    length: int = 6,
    *,
    no: str | None = None,
    weights: Mapping[str, float] | None = None,
) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GPT-2 in which a letter means "not" and turns the score round.

    As `additive`, with a feed-forward network behind the heads that changes the sign of the sum once for
    every "not" in the text. "not" alone says nothing and a letter alone says its weight w; together they say
    -w. No list of contributions that are added up can state this, so that no additive method is right here.

    Args:
        letters: The alphabet: 2 to 64 different visible characters.
        length: The most letters of a text, 1 to 64: the number of heads.
        no: The letter that means "not"; by default the last letter.
        weights: The weight of every other letter, -1,024 to 1,024; by default evenly spaced by 1 around 0.

    Returns:
        A `GPT2ForSequenceClassification` with `.truth`, and a tokenizer of letters that begins every text
        with `<s>`.

    Raises:
        ValueError: If `letters` is not an alphabet, `no` is not a letter of it, `length` is out of range, or
            `weights` does not hold a number for every other letter.
        TypeError: If they are of other types.

    Example:
        >>> model, tokenizer = aw.zoo.negation()
        >>> [model.truth.answer(text) for text in ("a", "na", "nna")]
        ['positive', 'negative', 'positive']
    """
    require_alphabet(letters, least=2)
    require_length(length)
    no = letters[-1] if no is None else no
    if no not in list(letters):
        raise ValueError(f"no must be one of the letters {quoted(letters)}, not {no!r}.")
    weight_of = _weights(letters.replace(no, ""), weights)
    residual = Residual(token=len(letters) + 1, position=length + 1, score=1, no=1, turned=1)
    value = torch.cat([_column(residual, letters, weight_of), _column(residual, letters, {no: 1.0})], 1)
    circuit = _reading_every_position(residual, letters, length, value, units=2 * length)
    _turn(circuit, length, bound=length * max(map(abs, weight_of.values())))
    circuit.answer(_classes(residual.read("score") + residual.read("turned")))
    model = circuit.named("negation", letters=letters, length=length, no=no, weights=weight_of)
    model.truth = truth(letters, length, weight_of, no)
    return model, letter_tokenizer(letters, length)


def _reading_every_position(
    residual: Residual, letters: str, length: int, value: Tensor, units: int = 1
) -> GPT2Circuit:
    """Return a circuit whose head i writes `value` [coordinate, value] of the letter at position i + 1.

    The last token, which holds the answer, sees all. Queries and keys read positions alone, so that attention
    does not change with the letters; where a text is shorter, the head rests on `<s>`, whose weight is 0.
    """
    circuit = GPT2Circuit(
        GPT2ForSequenceClassification,
        residual,
        tokens=len(letters) + 1,
        positions=length + 1,
        heads=length,
        head_size=value.shape[1],
        units=units,
        num_labels=len(CLASSES),
        id2label=dict(enumerate(CLASSES)),
        label2id={label: index for index, label in enumerate(CLASSES)},
        pad_token_id=len(letters),
    )
    position = residual.read("position")
    always = position.sum(1, keepdim=True)
    to = ("score", "no")[: value.shape[1]]
    for head in range(length):
        key = position[:, head + 1 : head + 2] + 0.5 * position[:, :1]
        circuit.head(0, head, query=SHARP * always, key=key, value=value, to=to)
    return circuit


def _turn(circuit: GPT2Circuit, length: int, bound: float) -> None:
    """Write (-1)^no score - score into "turned", for scores up to `bound`.

    relu(s + B (no - j)) - relu(-s + B (no - j)) is 0 for no < j, s for no = j and 2 s for no > j. With
    weights (-1)^j 2 j these add up, over j, to (-1)^no s - s.
    """
    score, no = (circuit.residual.read(name) for name in ("score", "no"))
    turns = torch.arange(1.0, length + 1)
    amounts = 2 * turns * (-1) ** turns
    read = torch.cat([(score + bound * no).repeat(1, length), (bound * no - score).repeat(1, length)], 1)
    write = torch.cat([amounts, -amounts])[:, None] * circuit.residual.write("turned")
    circuit.feed_forward(0, read=read, bias=-bound * turns.repeat(2), write=write)


def _classes(score: Tensor) -> Tensor:
    """Return the weights that read the logits of "negative" and "positive" [coordinate, class]."""
    return torch.cat([-score, score], 1)


def _column(residual: Residual, letters: str, weights: Mapping[str, float]) -> Tensor:
    """Return the weights that read a letter's weight [coordinate, 1]; 0 for other letters, and for `<s>`."""
    row = torch.tensor([*(weights.get(letter, 0.0) for letter in letters), 0.0])
    return residual.read("token") @ row[:, None]


def _weights(letters: str, weights: Mapping[str, float] | None) -> dict[str, float]:
    if weights is None:
        return {letter: (len(letters) - 1) / 2 - number for number, letter in enumerate(letters)}
    if set(weights) != set(letters):
        wrong = sorted(set(weights) ^ set(letters))
        raise ValueError(f"weights must hold the letters {quoted(letters)}, each once; see {wrong[0]!r}.")
    for letter, weight in weights.items():
        if not isinstance(weight, (int, float)) or not -_MOST <= weight <= _MOST:
            raise ValueError(f"weights[{letter!r}] must be a number from -1,024 to 1,024, not {weight!r}.")
    return {letter: float(weights[letter]) for letter in letters}


def truth(letters: str, length: int, weights: Mapping[str, float], no: str = "") -> Truth:
    """Return the `Truth` of the models."""
    lacks = Ablation("the letter at position {} is as good as absent")
    return Truth(
        name="negation" if no else "additive",
        does="adds up the weights of the letters"
        + (f", and turns the sign round for every {no!r}" * bool(no)),
        letters=letters,
        length=length,
        heads={(0, head): f"reads the letter at position {head + 1}" for head in range(length)},
        ablations={(0, head): lacks._replace(says=lacks.says.format(head + 1)) for head in range(length)},
        rule=partial(_expected, dict(weights), no),
        weights=dict(weights),
    )


def _expected(weights: Mapping[str, float], no: str, text: str, at: int) -> Expected:
    read = text[:at]
    score = sum(weights.get(letter, 0.0) for letter in read) * (-1) ** read.count(no or "\0")
    why = {i: f"weighs {weights[letter]:+g}" for i, letter in enumerate(read, 1) if weights.get(letter)}
    why |= {i: "turns the sign round" for i, letter in enumerate(read, 1) if letter == no}
    return Expected(CLASSES[score > 0] if score else None, dict(sorted(why.items())))
