"""The axes of attention in torch's operations: which holds the keys of weights, and what a product sums.

`axis_after` follows the axis of keys through an operation on weights. Of a product, `factors_of` returns the
factors and the letters of their axes, as in an einsum. `orders_of` returns the orders in which the axes of
weights, values and output are [batch, head, row, column], and a `Form` reads a tensor in such an order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

VIEWS = frozenset({"view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "expand"})
TURNS = frozenset({"transpose", "swapaxes", "permute"})

STATES, MAPS = 3, 4  # axes of hidden states [batch, token, width], and of maps [batch, head, query, key]


@dataclass(frozen=True)
class Form:
    """The axes of a tensor in a product, in the order [batch, head, row, column].

    Args:
        order: Its axes in that order; three of them if the first joins heads and samples.
        batch: Number of samples.
    """

    order: tuple[int, ...]
    batch: int

    def read(self, tensor: Tensor) -> Tensor:
        """Return a view [batch, head, row, column] of a tensor."""
        turned = tensor.permute(self.order)
        return turned if turned.dim() == MAPS else turned.unflatten(0, (self.batch, -1))

    def written(self, maps: Tensor) -> Tensor:
        """Return maps [batch, head, row, column] in the form of the tensor."""
        whole = maps if len(self.order) == MAPS else maps.flatten(0, 1)
        return whole.permute(tuple(self.order.index(axis) for axis in range(len(self.order))))


def axis_after(name: str, axis: int, source: Tensor, output: Tensor, options: tuple[Any, ...]) -> int | None:
    """Return the axis of keys after an operation; None if it no longer holds weights of all keys."""
    count = source.dim()
    if name in TURNS:
        dims = options[0] if options and isinstance(options[0], (tuple, list)) else options
        order = list(range(count))
        if name == "permute":
            order = [dim % count for dim in dims]
        elif len(dims) == len(("first", "second")):
            first, second = (dim % count for dim in dims)
            order[first], order[second] = order[second], order[first]
        return order.index(axis % count) - count
    if name in VIEWS:
        same = axis == -1 and output.dim() and output.shape[-1] == source.shape[-1]
        return -1 if same else None
    if name == "__getitem__":
        # Weights without the column of a sink are weights; a part of the heads or queries is not all of them.
        return (
            axis if output.dim() == count and output.shape[:-1] == source.shape[:-1] and axis == -1 else None
        )
    return axis if output.shape == source.shape else None


def factors_of(args: tuple[Any, ...]) -> tuple[list[Any], tuple[str, str, str] | None]:
    """Return the two factors of a product, and the letters of its axes and theirs; None if not plain."""
    if args and isinstance(args[0], str):
        factors = args[1] if len(args) == len(("equation", "factors")) else args[1:]
        left, _, out = args[0].replace(" ", "").partition("->")
        first, _, second = left.partition(",")
        plain = f"{first}{second}{out}".isalpha() and len(factors) == len(("first", "second"))
        return list(factors), (first, second, out) if plain else None
    both = list(args[:2])
    if len(both) < len(("first", "second")) or not all(isinstance(part, Tensor) for part in both):
        return both, None
    first, second = (part.dim() for part in both)
    leading = {STATES: "x", MAPS: "bh"}.get(first)
    return both, (f"{leading}ij", f"{leading}jk", f"{leading}ik") if leading and first == second else None


def with_factors(args: tuple[Any, ...], pair: list[Tensor]) -> tuple[Any, ...]:
    """Return the arguments of a product with other factors."""
    if not isinstance(args[0], str):
        return (*pair, *args[2:])
    return (args[0], pair) if len(args) == len(("equation", "factors")) else (args[0], *pair)


def orders_of(
    letters: tuple[str, str, str], index: int, axis: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Return the orders of axes of weights, values and output; None if it does not sum over keys.

    Args:
        letters: The axes of the two factors and of their product.
        index: Which of the factors holds the weights.
        axis: The axis of their keys.
    """
    weights, values, output = letters[index], letters[1 - index], letters[2]
    summed = [letter for letter in weights if letter in values and letter not in output]
    leading = [letter for letter in weights if letter in values and letter in output]
    query = [letter for letter in weights if letter not in values]
    width = [letter for letter in values if letter not in weights]
    counts = (len(summed), len(query), len(width), len(leading) in (1, 2))
    if counts != (1, 1, 1, True) or set(output) != {*leading, *query, *width} or weights[axis] != summed[0]:
        return None
    orders = ((weights, query + summed), (values, summed + width), (output, query + width))
    of_weights, of_values, of_output = (
        tuple(axes.index(letter) for letter in leading + last) for axes, last in orders
    )
    return of_weights, of_values, of_output
