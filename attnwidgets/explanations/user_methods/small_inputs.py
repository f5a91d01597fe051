"""Small attention inputs for checks, the smallest and simplest first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.registry.requirements import n_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

# (tokens, layers, heads), by the number of values.
SIZES = (
    (1, 1, 1),
    (2, 1, 1),
    (2, 2, 1),
    (2, 1, 2),
    (3, 1, 1),
    (2, 3, 1),
    (2, 2, 2),
    (3, 2, 1),
    (3, 1, 2),
    (3, 2, 2),
    (3, 3, 2),
)
_TOKENS = ("a", "b", "c")
_DRAWS = 3
_QUARTERS = 4


@dataclass(frozen=True)
class SmallInput:
    """Attention [layer, head, query, key] with its tokens; rows sum to one."""

    attention: NDArray[np.float64]
    tokens: tuple[str, ...]

    @property
    def words(self) -> str:
        """Its size, in words: "2 tokens, 1 layer, 1 head"."""
        layers, heads, _, n = self.attention.shape
        sizes = (("token", n), ("layer", layers), ("head", heads))
        return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in sizes)

    def trace(self) -> Any:
        """Return it as a new trace each time, as a function may write into it."""
        from attnwidgets.tracing.from_attentions import from_attentions

        return from_attentions(self.attention.astype(np.float32), list(self.tokens))


@cache
def small_inputs() -> tuple[SmallInput, ...]:
    """Return all small inputs, in order; the same every time. Some are causal."""
    inputs = []
    for n, layers, heads in SIZES:
        distinct = {attention.tobytes(): attention for attention in _attentions(n, layers, heads)}
        inputs += [SmallInput(attention, _TOKENS[:n]) for attention in distinct.values()]
    return tuple(inputs)


def _attentions(n: int, layers: int, heads: int) -> Iterator[NDArray[np.float64]]:
    """Yield attention [layer, head, query, key]: simple patterns, then random rows of quarters."""
    shape = (layers, heads, n, n)
    plain = (np.eye(n), _shares(np.ones((n, n))), _shares(np.tril(np.ones((n, n)))), np.eye(n)[:, ::-1])
    for pattern in plain:
        yield np.broadcast_to(pattern, shape).copy()
    for draw in range(_DRAWS):
        rng = np.random.default_rng((n, layers, heads, draw))
        for causal in (True, False):
            rows = np.zeros(shape)
            for layer, head, query in np.ndindex(shape[:3]):
                reads = query + 1 if causal else n
                counts = rng.multinomial(_QUARTERS, np.full(reads, 1 / reads))
                rows[layer, head, query, :reads] = counts / _QUARTERS
            yield rows


def _shares(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows divided by their sums; zero for rows of zeros."""
    totals = matrix.sum(-1, keepdims=True)
    return np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals > 0)


def shrink(trace: Any, stack: str, fails: Callable[[SmallInput], bool]) -> SmallInput | None:
    """Return the smallest part of a trace's attention that still fails, or None if no part does.

    Parts are the first tokens, layers and heads, with rows rescaled to one. Each number is halved, then
    lowered by one, as long as the rest still fails.

    Args:
        trace: A trace whose stack attends to itself.
        stack: Name of the stack.
        fails: Takes a part and returns whether it fails.
    """
    numbers, heads, n = trace.layers(stack), trace.n_heads(stack), n_keys(trace, stack)
    labels = trace.axes(stack)[1].tokens

    def part(sizes: tuple[int, ...]) -> SmallInput:
        rows = [np.asarray(trace.attention_layer(n, stack), dtype=np.float64) for n in numbers[: sizes[0]]]
        n_heads = min(sizes[1], *map(len, rows))
        kept = np.stack([layer[:n_heads, : sizes[2], : sizes[2]] for layer in rows])
        return SmallInput(_shares(kept), labels[: sizes[2]])

    sizes: tuple[int, ...] = (len(numbers), heads, n)
    if not fails(part(sizes)):
        return None
    lowered: tuple[Callable[[int], int], ...] = (lambda size: math.ceil(size / 2), lambda size: size - 1)
    for lower in lowered:
        shrinks = True
        while shrinks:
            shrinks = False
            for axis in (2, 0, 1):
                fewer = (*sizes[:axis], lower(sizes[axis]), *sizes[axis + 1 :])
                if 0 < fewer[axis] < sizes[axis] and fails(part(fewer)):
                    sizes, shrinks = fewer, True
    return part(sizes)
