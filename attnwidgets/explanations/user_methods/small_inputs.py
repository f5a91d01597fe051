"""Small attentions to try a function on, the smallest and plainest first."""

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

# (tokens, layers, heads), by how many numbers there are to look at.
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
        """Return it as a trace, made anew each time: a function may write into one."""
        from attnwidgets.tracing.from_attentions import from_attentions

        return from_attentions(self.attention.astype(np.float32), list(self.tokens))


@cache
def small_inputs() -> tuple[SmallInput, ...]:
    """Return all of them, in order; the same every time. Some are causal."""
    found = []
    for n, layers, heads in SIZES:
        seen = set()
        for attention in _attentions(n, layers, heads):
            if attention.tobytes() not in seen:
                seen.add(attention.tobytes())
                found.append(SmallInput(attention, _TOKENS[:n]))
    return tuple(found)


def _attentions(n: int, layers: int, heads: int) -> Iterator[NDArray[np.float64]]:
    """Yield attention [layer, head, query, key]: plain patterns, then rows of quarters, drawn."""
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
                rows[layer, head, query, :reads] = (
                    rng.multinomial(_QUARTERS, np.full(reads, 1 / reads)) / _QUARTERS
                )
            yield rows


def _shares(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    return matrix / matrix.sum(-1, keepdims=True)


def shrunk(trace: Any, stack: str, fails: Callable[[SmallInput], bool]) -> SmallInput | None:
    """Return the smallest part of a trace's attention that still fails, or None where no part does.

    Parts are the first tokens, layers and heads, every row divided by its sum again. Each is halved, then
    lowered by one, as long as the rest still fails.

    Args:
        trace: A trace whose stack attends to itself.
        stack: Which stack.
        fails: Takes a part.
    """
    layers, heads, n = trace.n_layers(stack), trace.n_heads(stack), n_keys(trace, stack)
    labels = trace.axes(stack)[1].tokens

    def part(sizes: tuple[int, ...]) -> SmallInput:
        rows = [
            np.asarray(trace.attention_layer(layer, stack), dtype=np.float64)[: sizes[1]]
            for layer in range(sizes[0])
        ]
        fewest = min(len(layer) for layer in rows)
        kept = np.stack([layer[:fewest, : sizes[2], : sizes[2]] for layer in rows])
        totals = kept.sum(-1, keepdims=True)
        return SmallInput(
            np.divide(kept, totals, out=np.zeros_like(kept), where=totals > 0), labels[: sizes[2]]
        )

    sizes: tuple[int, ...] = (layers, heads, n)
    if not fails(part(sizes)):
        return None
    for lower in (_halved, _one_less):
        going = True
        while going:
            going = False
            for axis in (2, 0, 1):
                fewer = (*sizes[:axis], lower(sizes[axis]), *sizes[axis + 1 :])
                if 0 < fewer[axis] < sizes[axis] and fails(part(fewer)):
                    sizes, going = fewer, True
    return part(sizes)


def _halved(size: int) -> int:
    return math.ceil(size / 2)


def _one_less(size: int) -> int:
    return size - 1
