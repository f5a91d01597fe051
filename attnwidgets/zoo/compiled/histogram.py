"""Histogram: count how often a letter occurs, by a function with three opposite attention maps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import BertForTokenClassification

from attnwidgets._errors import require_choice
from attnwidgets.zoo.compiled.circuit import LOGIT, SHARP, BertCircuit, Residual, bands, steps
from attnwidgets.zoo.tokenizers import letter_tokenizer, require_alphabet, require_length
from attnwidgets.zoo.truth import Expected, Truth, all_equal

if TYPE_CHECKING:
    from torch import Tensor

How = Literal["same", "all", "different"]
READS = {
    "same": "reads equal letters and <s>, evenly",
    "all": "reads everything, evenly",
    "different": "reads different letters and <s>, evenly, and no equal one",
}


def histogram(how: How = "same", letters: str = "abcdefgh", length: int = 10) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a BERT that counts, at every letter, how often it occurs in the text.

    One layer and one head. The three variants compute the same function with opposite attention: a map alone
    does not show the function. "same" reads equal letters, and its feed-forward network the count from the
    share that is left for `<s>`; "different" reads all letters but the equal ones, "all" reads everything.

    Args:
        how: The letters that the head reads: the "same" letters, "all" of them, or "different" letters.
        letters: The alphabet: 1 to 64 different visible characters.
        length: The most letters of a text, 1 to 64. "all" and "different" need texts of exactly this length.

    Returns:
        A `BertForTokenClassification` with `.truth`, whose class i says "i + 1 times", and a tokenizer of
        letters that begins every text with `<s>`.

    Raises:
        ValueError: If `how` is unknown, `letters` is not an alphabet, or `length` is out of range.
        TypeError: If they are not strings and a whole number.

    Source: Weiss et al. 2021, Thinking Like Transformers (the task).

    Example:
        >>> model, tokenizer = aw.zoo.histogram("same", letters="abcdefgh", length=10)
        >>> model.truth.answer("abacabadab", at=1)
        '5'
        >>> row = aw.attention(aw.trace(model, tokenizer, "abacabadab")).values[0, 0, 1]
        >>> [f"{share:.2f}" for share in row[:4]]
        ['0.17', '0.17', '0.00', '0.17']
    """
    require_choice("how", how, tuple(READS))
    require_alphabet(letters)
    require_length(length)
    tokens = len(letters) + 1
    residual = Residual(token=tokens, share=len(letters) if how == "all" else 1, out=length)
    units = 2 * length * len(letters) if how == "all" else 2 * length + 2
    circuit = BertCircuit(
        BertForTokenClassification,
        residual,
        tokens=tokens,
        positions=length + 1,
        head_size=tokens,
        units=units,
        num_labels=length,
        id2label={i: str(i + 1) for i in range(length)},
        label2id={str(i + 1): i for i in range(length)},
    )
    _attend(circuit, how)
    read, bias, write = _counts(residual, how, length)
    circuit.feed_forward(0, read=read, bias=bias, write=write @ residual.write("out"))
    circuit.answer(LOGIT * residual.read("out"))
    model = circuit.named("histogram", how=how, letters=letters, length=length)
    model.truth = truth(how, letters, length)
    return model, letter_tokenizer(letters, length)


def _attend(circuit: BertCircuit, how: How) -> None:
    """Write the head; its share on `<s>` is 1 / (1 + letters that it reads)."""
    token = circuit.residual.read("token")
    letters, is_start = token[:, :-1], token[:, -1:]
    if how == "same":  # `<s>` answers every token, itself included
        circuit.head(0, 0, query=SHARP * token, key=token + is_start, value=is_start, to=("share",))
    elif how == "different":
        circuit.head(0, 0, query=SHARP * letters, key=-letters, value=is_start, to=("share",))
    else:
        circuit.head(0, 0, value=letters, to=("share",))


def _counts(residual: Residual, how: How, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return units that tell the count: weights [coordinate, unit], bias [unit], weights [unit, class]."""
    share = residual.read("share")
    if how == "same":
        values = [1 / (count + 1) for count in range(length + 2)]
        read, bias, write = bands(values[::-1], share[:, 0])
        return read, bias, write.flip(1)
    if how == "different":
        values = [1 / (length - count + 1) for count in range(length + 1)]
        return bands([*values, 1.5], share[:, 0])
    # A letter's share of length + 1 tokens, told by units that only this letter opens.
    token, parts = residual.read("token"), []
    shut = 2.0 * length + 4
    thresholds = [count - 0.5 for count in range(1, length + 1)]
    for letter in range(share.shape[1]):
        read, bias, write = steps(thresholds, [1.0] * length, (length + 1) * share[:, letter])
        parts.append((read + shut * token[:, letter : letter + 1], bias - shut, write))
    write = torch.cat([part[2] for part in parts])
    write[:, :-1] -= write[:, 1:].clone()
    return torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts]), write


def truth(how: How, letters: str, length: int) -> Truth:
    """Return the `Truth` of the model."""
    exact = length if how != "same" else None
    return Truth(
        name=f"histogram({how!r})",
        does="counts, at every letter, how often it occurs in the text"
        + (f" of exactly {length} letters" if exact else ""),
        letters=letters,
        length=length,
        heads={(0, 0): READS[how]},
        ablations={(0, 0): all_equal(length)},
        rule=partial(_expected, exact),
        at=1,
    )


def _expected(exact: int | None, text: str, at: int) -> Expected:
    if exact is not None and len(text) != exact:
        raise ValueError(f"text has {len(text)} letters; this model counts in texts of exactly {exact}.")
    if at == 0:
        return Expected(None, {})
    equal = [i for i, letter in enumerate(text, 1) if letter == text[at - 1]]
    return Expected(
        str(len(equal)), {i: "the letter itself" if i == at else "an equal letter" for i in equal}
    )
