"""A weight of a kernel as NeuronView shows it: its steps, of which the least are joined, and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.verbalise import quoted
from attnwidgets.tracing.mixers.chains import condensed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.mixing.kernel_row import KernelRow
    from attnwidgets.tracing.mixers.chains import Chain, Step

_APART = 5  # steps that stand by themselves in a long chain
_LISTED = 4  # factors that a sentence lists
_LEAST, _MOST = 1e-4, 1e5  # numbers outside are written with an exponent
_ALIKE = 5e-4  # a difference of factors that three digits do not show


@dataclass(frozen=True)
class ShownChain:
    """A weight of a kernel, ready to be shown.

    Attributes:
        chain: The steps that lead to the weight.
        steps: The same, with small steps joined.
        words: The chain in a sentence or two.
        note: Caveats, or "".
    """

    chain: Chain
    steps: tuple[Step, ...]
    words: str
    note: str

    @property
    def erases(self) -> bool:
        """Whether any step erases something."""
        return any(step.erased for step in self.chain.steps)

    def described(self) -> dict[str, Any]:
        """Return it as the browser has it: `ShownChain` of chain.ts."""
        chain = self.chain
        numbers = {name: getattr(chain, name) for name in ("formula", "start", "skip", "total", "weight")}
        steps = [asdict(step) for step in self.steps]
        return numbers | {"steps": steps, "erases": self.erases, "words": self.words, "note": self.note}


def shown_chain(row: KernelRow, key: int, labels: Sequence[str]) -> ShownChain:
    """Return how a weight of a row comes about.

    Args:
        row: The row.
        key: The position that is read.
        labels: Labels of the positions.

    Raises:
        UnsupportedModelError: If the kernel has no state.
    """
    chain = row.chain(key)
    words = f"{_happens(chain, row.query, key, labels)} {_weight(chain)}".strip()
    return ShownChain(chain, condensed(chain, _APART), words, _note(chain, row.reach))


def _happens(chain: Chain, query: int, key: int, labels: Sequence[str]) -> str:
    """Return a sentence on how the positions after a key change the value that it wrote."""
    reader, writer = (quoted([labels[at]], labels) for at in (query, key))
    if query == key:
        return f"{reader} reads what it writes itself."
    if not chain.steps:
        return f"{reader} reads all of what {writer} wrote."
    if not chain.start:
        return f"{reader} does not ask for what {writer} wrote: {chain.formula} is 0."
    ratio = chain.value / chain.start if chain.start else -1.0
    # Where components or keys cancel each other, no share is left, but some number.
    if 0 <= ratio <= 1:
        share = "reads all" if number(ratio) == "1" else f"keeps {number(ratio)}"
        left = f"{reader} {share} of what {writer} wrote"
    else:
        left = f"{reader} reads {number(chain.value)} of what {writer} wrote, {number(chain.start)} at first"
    return f"{left}: {_passes(chain, labels)}."


def _passes(chain: Chain, labels: Sequence[str]) -> str:
    """Return the effects of the steps of a chain, in a clause."""
    steps, count = chain.steps, len(chain.steps)
    factors = [step.factor for step in steps]
    product = prod(factors)
    tokens = "1 token after it multiplies" if count == 1 else f"{count} tokens after it multiply"
    is_even = max(factors) - min(factors) < _ALIKE
    if is_even and abs(factors[0] - 1) < _ALIKE:
        decays = ""
    elif is_even and count > 1:
        decays = f"each of {count} tokens after it multiplies it by {number(factors[0])}"
    elif count <= _LISTED:
        listed = [number(factor) for factor in factors]
        decays = f"{tokens} it by {' and '.join(filter(None, [', '.join(listed[:-1]), listed[-1]]))}"
    else:
        least = min(steps, key=lambda step: abs(step.factor))
        name = quoted([labels[least.first]], labels)
        decays = f"{tokens} it by {number(product)}, {name} most ({number(least.factor)})"
    most = max(steps, key=lambda step: abs(step.erased))
    erases = ""
    if most.erased:
        before, after = number(most.value + most.erased), number(most.value)
        erases = f"overwriting by {quoted([labels[most.first]], labels)} takes it from {before} to {after}"
    return "; ".join(filter(None, (decays, erases))) or "no token after it changes it"


def _weight(chain: Chain) -> str:
    """Return a sentence on how the weight follows from the steps."""
    value, weight = number(chain.value), number(chain.weight)
    skip = f" + {number(chain.skip)} (skip connection)" if chain.skip else ""
    if chain.total != 1:
        sum_of = f"({value}{skip})" if skip else value
        return f"Weight {weight} = {sum_of} / {number(chain.total)}, the total of the row."
    if chain.steps and chain.start and 0 <= chain.value / chain.start <= 1:
        value = f"{number(chain.start)} × {number(chain.value / chain.start)}"
    elif chain.steps and not skip:
        return f"This is the weight, {weight}." if chain.start else ""
    return (
        f"Weight {weight} = {value}{skip}." if skip or chain.steps else f"Weight {weight} = {chain.formula}."
    )


def _note(chain: Chain, reach: int) -> str:
    """Return the caveats of a chain, in sentences."""
    notes = []
    if reach > 1:
        before = "the token before it" if reach == 2 else f"the {reach - 1} tokens before it"  # noqa: PLR2004
        notes.append(f"What a position writes is already mixed with {before}.")
    if chain.components > 1 and chain.steps:
        notes.append(
            f"The {chain.components} components of the state decay at different rates: a factor is what is "
            "left of their sum."
        )
    return " ".join(notes)


def number(value: float) -> str:
    """Return a number with three digits and a real minus sign."""
    size = abs(float(f"{value:.3g}"))
    if size == 0 or _LEAST <= size < _MOST:
        text = np.format_float_positional(size, trim="-")
    else:
        text = np.format_float_scientific(size, trim="-", exp_digits=1).replace("+", "")
    return f"−{text}" if value < 0 else text
