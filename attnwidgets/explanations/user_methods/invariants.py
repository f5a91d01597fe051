"""Invariants of explanations by name, a message for each violation, and small inputs that test them.

The check of an `Invariant` returns a `Violation`, with the wrong numbers, or None. `small_inputs` are
attentions of up to three tokens and layers, and two heads. `shrink` reduces a trace to the smallest part that
fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.registry.requirements import n_keys
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from attnwidgets.explanations.explanation import Explanation
    from attnwidgets.explanations.results.arrays import Array

EQUALS = "equals:"

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
class Violation:
    """A violation of an invariant.

    Attributes:
        said: Description of the violation and its position.
        layer: Number of the layer, for a map.
        returned: The returned values there: [query, key], or [source].
        expected: The right values; None if only a property of them is checked.
    """

    said: str
    layer: int | None = None
    returned: Array | None = None
    expected: Array | None = None


@dataclass(frozen=True)
class Invariant:
    """A property that a method's results must have.

    Attributes:
        name: Its name in `@aw.register(invariants=...)`.
        words: The property, as a sentence.
        unasked: Takes a trace; returns "" if results on it can be checked, else why not.
        check: Takes the result, the trace and a tolerance; returns None if the property holds.
    """

    name: str
    words: str
    unasked: Callable[[Any], str]
    check: Callable[[Explanation, Any, float], Violation | None]


def resolve_invariants(names: str | tuple[str, ...]) -> tuple[Invariant, ...]:
    """Return invariants by name.

    Raises:
        ValueError: For an unknown name or reference; the message lists the names.
    """
    return tuple(_invariant(str(name)) for name in ((names,) if isinstance(names, str) else tuple(names)))


def _invariant(name: str) -> Invariant:
    if name.startswith(EQUALS):
        return _equals(name)
    if name not in INVARIANTS:
        near = suggest(name, [*INVARIANTS, "equals:rollout"])
        raise ValueError(
            f"invariant {name!r} is not one of {listed(INVARIANTS)}, nor 'equals:<method>'.{near}"
        )
    return INVARIANTS[name]


def matrices(result: Explanation) -> Iterator[tuple[int | None, str, Array]]:
    """Yield (layer, its name in words, values [query, key] or [source]) of every matrix of an explanation."""
    if isinstance(result, MixingMap):
        for number in result.layers:
            layer = result.layer(number)
            if result.heads is None:
                yield number, f"layer {number}", layer
            else:
                for head, matrix in zip(result.heads, layer, strict=False):
                    yield number, f"layer {number}, head {head}", matrix
    elif isinstance(result, Attributions):
        for target, values in zip(result.targets, np.atleast_2d(result.values), strict=True):
            yield None, f"target {target!r}" if target else "", values


def _row(result: Explanation, matrix: str, query: int | None) -> str:
    """Return a row in words: "layer 0, row 1 ('b')"."""
    labels = result.query_labels if isinstance(result, MixingMap) else ()
    named = f"row {query} ({labels[query]!r})" if query is not None and labels else ""
    return ", ".join(part for part in (matrix, named) if part) or "the values"


def _rows_sum_to_one(result: Explanation, _: Any, tolerance: float) -> Violation | None:
    for layer, matrix, values in matrices(result):
        sums = np.atleast_1d(values.sum(-1, dtype=np.float64))
        errors = np.abs(sums - 1)
        if errors.max() > tolerance:
            worst = int(errors.argmax())
            where = _row(result, matrix, worst if values.ndim > 1 else None)
            return Violation(f"{where}: the sum is {sums[worst]:.6g}, not 1", layer, values)
    return None


def _nonnegative(result: Explanation, _: Any, tolerance: float) -> Violation | None:
    for layer, matrix, values in matrices(result):
        if values.min() < -tolerance:
            at = np.unravel_index(int(values.argmin()), values.shape)
            said = f"{_row(result, matrix, None)}: {values.min():.6g} at {_cell(result, at)} is negative"
            return Violation(said, layer, values)
    return None


def _cell(result: Explanation, at: tuple[Any, ...]) -> str:
    """Return "query 1 ('b'), key 0 ('a')", or "source 0 ('a')"."""
    if isinstance(result, MixingMap):
        query, key = (int(index) for index in at[-2:])
        return f"query {query} ({result.query_labels[query]!r}), key {key} ({result.key_labels[key]!r})"
    labels = result.labels if isinstance(result, Attributions) else ()
    return f"source {int(at[-1])} ({labels[int(at[-1])]!r})"


def _causal(result: Explanation, _: Any, tolerance: float) -> Violation | None:
    if not isinstance(result, MixingMap):
        return Violation(f"'causal' applies to maps, and {result.kind} were returned")
    for layer, matrix, values in matrices(result):
        later = np.triu(np.abs(values), 1)
        if later.max() > tolerance:
            at = np.unravel_index(int(later.argmax()), later.shape)
            said = f"{matrix}: {values[at]:.6g} at {_cell(result, at)}, a key that the query cannot see"
            return Violation(said, layer, values)
    return None


def _causal_unasked(trace: Any) -> str:
    return "" if trace.is_causal(trace.default_stack) else "the attention is not causal"


def _complete(result: Explanation, trace: Any, tolerance: float) -> Violation | None:
    from attnwidgets.explanations.targets.named import resolve_target

    if not isinstance(result, Attributions):
        return Violation(f"'complete' applies to Attributions, and a {result.kind} was returned")

    def logit(named: str | None, name: str, like: Any = None) -> tuple[Any, float]:
        target = resolve_target(trace, named or None, name=name, method="complete", logit=True, like=like)
        row = trace.logits if target.position is None else trace.logits[target.position]
        return target, float(row[target.index])

    for target, values in zip(result.targets, np.atleast_2d(result.values), strict=True):
        resolved, score = logit(target, "target")
        if result.foil:
            score -= logit(result.foil, "foil", resolved)[1]
        total = float(values.sum(dtype=np.float64))
        if abs(total - score) > tolerance * max(1.0, abs(score)):
            contrast = f" less that of {result.foil!r}" if result.foil else ""
            said = f"the values sum to {total:.6g}; the logit of {resolved.label!r}{contrast} is {score:.6g}"
            return Violation(said, None, values)
    return None


def _complete_unasked(trace: Any) -> str:
    return "" if getattr(trace, "logits", None) is not None else "there are no logits without a model"


@dataclass(frozen=True)
class Difference:
    """The largest difference of two explanations in a layer (or for a target).

    Attributes:
        matrix: The layer or target, in words.
        largest: The difference.
        cell: The entry, in words.
        value: The first explanation's value there.
        reference: The second explanation's value there.
        layer: Number of the layer, for maps.
        returned: The first explanation's matrix.
        expected: The second explanation's matrix.
    """

    matrix: str
    largest: float
    cell: str
    value: float
    reference: float
    layer: int | None
    returned: Array
    expected: Array


def differences(result: Explanation, other: Explanation) -> list[Difference]:
    """Return the largest difference of `result` from `other`, for every matrix.

    Raises:
        ValueError: If the two cannot be compared; the message says why.
    """
    alike = result.kind == other.kind
    if isinstance(result, MixingMap) and isinstance(other, MixingMap):
        alike = set(result.layers) <= set(other.layers) and (result.heads is None) == (other.heads is None)
        other = other.select(layer=result.layers) if alike else other
    pairs = list(zip(matrices(result), matrices(other), strict=False)) if alike else []
    if not alike or result.shape != other.shape or any(a[2].shape != b[2].shape for a, b in pairs):
        raise ValueError(f"{_axes(result)} was returned, and {other.method} is {_axes(other)}")
    rows = []
    for (layer, matrix, returned), (_, _, expected) in pairs:
        errors = np.abs(returned.astype(np.float64) - expected)
        at = np.unravel_index(int(errors.argmax()), errors.shape)
        values = float(errors[at]), _cell(result, at), float(returned[at]), float(expected[at])
        rows.append(Difference(matrix, *values, layer, returned, expected))
    return rows


def _axes(result: Explanation) -> str:
    sizes = zip(result.axis_names, result.shape, strict=True)
    return f"{result.kind} [{', '.join(f'{name} {size}' for name, size in sizes)}]"


def _equals(name: str) -> Invariant:
    reference = methods()[name[len(EQUALS) :].strip()]

    def check(result: Explanation, trace: Any, tolerance: float) -> Violation | None:
        expected = reference.function(trace)
        try:
            rows = differences(result, expected)
        except ValueError as error:
            return Violation(str(error))
        worst = next((row for row in rows if row.largest > tolerance), None)
        if worst is None:
            return None
        matrix = f"{worst.matrix}, " if worst.matrix else ""
        values = f"{worst.value:.6g} was returned, {reference.name} is {worst.reference:.6g}"
        said = f"{matrix}{worst.cell}: {values}"
        return Violation(said, worst.layer, worst.returned, worst.expected)

    return Invariant(name, f"it is what aw.{reference.name} returns", reference.refusal, check)


def _always(_: Any) -> str:
    return ""


INVARIANTS = {
    invariant.name: invariant
    for invariant in (
        Invariant("rows_sum_to_one", "every row sums to one", _always, _rows_sum_to_one),
        Invariant("nonnegative", "no value is negative", _always, _nonnegative),
        Invariant("causal", "no query draws from a key it cannot see", _causal_unasked, _causal),
        Invariant("complete", "the values sum to the target's logit", _complete_unasked, _complete),
        Invariant("sums_to_logit", "the values sum to the target's logit", _complete_unasked, _complete),
    )
}
"""Invariants by name; "equals:<method>" exists for every method."""


@dataclass(frozen=True)
class SmallInput:
    """Attention [layer, head, query, key] with its tokens; rows sum to 1."""

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

    Parts are the first tokens, layers and heads, with rows rescaled to sum to 1. Each number is halved, then
    lowered by 1, as long as the rest still fails.

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
        first = np.stack([layer[:n_heads, : sizes[2], : sizes[2]] for layer in rows])
        return SmallInput(_shares(first), labels[: sizes[2]])

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
