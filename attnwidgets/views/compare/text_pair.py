"""Two texts under the same method: explanations by aligned columns, and predictions side by side.

`TextPair` computes both explanations with the same options; `Aligned` reads them over the columns of an
`Alignment`, each of which has elements of both texts that stand for each other, or of a single text.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import listed
from attnwidgets.explanations.results.aligned import Aligned
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.predictions import label_of, predicted_values
from attnwidgets.tracing.text.alignment import letters
from attnwidgets.tracing.trace_difference import aligned_by, predict, why_other_outputs
from attnwidgets.views.base.opening import last_content
from attnwidgets.views.wire.axes import base_of, method_of, target_of
from attnwidgets.views.wire.header import prediction_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.text.alignment import Alignment
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]
    Computed = Callable[[str, str], Any]

CHIPS = 8
"""Predictions of each text that are named."""
MOST = 30
"""Outcomes that are compared."""
_CHIP = itemgetter("id", "label", "probability")

REDUCTIONS = ("mean", "max")


class TextPair:
    """Two traces of two texts.

    Args:
        first: A trace.
        other: A trace of another text.
        computed: Takes the key of a method and a stack, returns the map of the first text if it is computed,
            else None.
    """

    def __init__(self, first: Trace, other: Trace, computed: Computed) -> None:
        self.traces = (first, other)
        self._computed = computed
        self._aligned: dict[tuple[str, str, str, str], Aligned] = {}
        self._explanations: dict[tuple[int, str, str], Any] = {}

    def stacks(self) -> tuple[str, ...]:
        """Return the stacks that both traces have."""
        return tuple(name for name in self.traces[0].stacks if name in self.traces[1].stacks)

    # -- predictions -------------------------------------------------------------------------------

    def predicted(self) -> list[Any]:
        """Return the most probable output of each text; [] if they have no outputs in common."""
        if not all(map(predict, self.traces)) or why_other_outputs(*self.traces):
            return []
        return [trace.predictions(1)[0] for trace in self.traces]

    def predictions(self, target: int | None = None, foil: int | None = None) -> dict[str, Any]:
        """Return the `Outcomes` of js/src/views/compare/twoTexts/outcomes.ts: probabilities, or numbers.

        Args:
            target: A class or token to include.
            foil: The class or token to contrast it with.
        """
        titles = [trace.predictions_title if trace.answer.predicts else "" for trace in self.traces]
        chips = [
            [[*_CHIP(prediction_of(prediction, ""))] for prediction in trace.predictions(CHIPS) if title]
            for trace, title in zip(self.traces, titles, strict=True)
        ]
        outcomes: dict[str, Any] = {"titles": titles, "chips": chips, "rows": []}
        outcomes |= {"reason": "", "target": None}
        if not all(map(predict, self.traces)):
            return outcomes | {"reason": "the model predicts nothing here" if not any(titles) else ""}
        reason = why_other_outputs(*self.traces)
        if reason:
            return outcomes | {"reason": f"their outputs are not the same: {reason}"}
        shares = [
            predicted_values(trace, trace.logits).numpy() for trace in self.traces if trace.logits is not None
        ]
        chosen = [number for number in (self._target(target), foil) if number is not None]
        for number in chosen:
            if not 0 <= number < len(shares[0]):
                raise IndexError(f"outcome {number} is out of range: there are {len(shares[0])}.")
        likely = [prediction for trace in self.traces for prediction in trace.predictions(MOST)]
        likely.sort(key=lambda prediction: -prediction.probability)
        numbers = list(dict.fromkeys([*chosen, *(item.id for item in likely)]))[:MOST]
        rows = [
            [number, label_of(self.traces[0], number), float(shares[0][number]), float(shares[1][number])]
            for number in numbers
        ]
        return outcomes | {"rows": rows, "target": chosen[0] if chosen else None}

    def _target(self, target: int | None) -> int | None:
        """Return the target in both texts: the prediction of the first text, if none was chosen."""
        predicted = self.predicted()
        return target if target is not None or not predicted else int(predicted[0].id)

    # -- explanations ------------------------------------------------------------------------------

    def explained(self, key: str, stack: str, unit: str, head: int | str = "-") -> Aligned:
        """Return the explanations of both texts by a method, in a unit.

        Args:
            key: The method's key, with the target if a target was chosen.
            stack: Name of the stack.
            unit: Name of the unit.
            head: A reduction over heads, "mean" or "max"; any other head reduces nothing.

        Raises:
            ValueError: The method was computed with other options than its defaults, or does not support a
                text.
        """
        how = head if head in REDUCTIONS else ""
        cached = (key, stack, unit, str(how))
        if cached not in self._aligned:
            sides = [self._explanation(side, key, stack) for side in range(len(self.traces))]
            if how and getattr(sides[0], "heads", None) is not None:
                sides = [item.reduce("head", how) for item in sides]
            self._aligned[cached] = Aligned(*(entry.to(unit) for entry in sides))
        return self._aligned[cached]

    def options(self, key: str, stack: str) -> dict[str, Any]:
        """Return the options under which a method explains both texts: its target, foil and stack."""
        from attnwidgets.explanations.registry.registry import methods

        method = methods()[method_of(key)]
        chosen: dict[str, Any] = {}
        if {"target", "foil"} <= set(method.options):
            about = target_of(key)
            target = self._target(about.get("target"))
            chosen = {**({} if target is None else {"target": target}), **about}
        if "stack" in method.options and stack != self.traces[0].default_stack:
            chosen["stack"] = stack
        return chosen

    def _explanation(self, side: int, key: str, stack: str) -> Any:
        """Return the explanation of a text, computed once for all units."""
        cached = (side, key, stack)
        if cached not in self._explanations:
            self._explanations[cached] = self._explain(side, key, stack)
        return self._explanations[cached]

    def _explain(self, side: int, key: str, stack: str) -> Any:
        from attnwidgets.explanations.registry.registry import methods

        if "#" in base_of(key):
            raise ValueError(
                f"{method_of(key)} was computed with options of its own, which only one text has; choose it "
                "in the menu, or compare aw.….diff(…) of both."
            )
        computed = self._computed(key, stack) if side == 0 else None
        if computed is not None and not isinstance(computed, Attributions):
            return computed
        return methods()[method_of(key)].function(self.traces[side], **self.options(key, stack))

    def alignments(self, stack: str, unit: str) -> tuple[Alignment, Alignment]:
        """Return how queries and keys of a stack are aligned in a unit."""
        from attnwidgets.tracing.text.alignment import align

        by = aligned_by(*self.traces)
        (query, key), (other_query, other_key) = (trace.axes(stack) for trace in self.traces)
        queries = align(query, other_query, unit, by=by)
        is_same = query is key and other_query is other_key
        return queries, queries if is_same else align(key, other_key, unit, by=by)

    def rows(
        self, key: str, stack: str, unit: str, layer: int, head: int | str, query: int | None
    ) -> tuple[Aligned, Float, int | None]:
        """Return the explanations, their rows and the difference [A, B, A less B; column], and the query.

        Args:
            key: The method's key.
            stack: Name of the stack.
            unit: Name of the unit.
            layer: Layer of maps.
            head: Head of maps: a number, "mean", "max", or "-" without heads.
            query: Column of the query whose row is read of maps; None: the default query.

        Raises:
            IndexError: The layer, head or query is out of range.
        """
        result = self.explained(key, stack, unit, head)
        if isinstance(result.sides[0], Attributions):
            first, other = result.vectors()
            return result, np.stack([first, other, first - other]), None
        chosen = self.default_query(stack, result.queries) if query is None else query
        first, other = self._matrix(result, layer, head, [_within(chosen, len(result.queries))])
        return result, np.concatenate([first, other, first - other]), chosen

    def maps(
        self, key: str, stack: str, unit: str, layer: int, head: int | str, first: tuple[int, int], most: int
    ) -> tuple[Aligned, Float]:
        """Return a part of both maps and of their difference [A, B, A less B; query, key], by columns.

        Args:
            key: The method's key.
            stack: Name of the stack.
            unit: Name of the unit.
            layer: The layer.
            head: The head: a number, "mean", "max", or "-" without heads.
            first: The first columns of queries and of keys.
            most: The largest number of each.
        """
        result = self.explained(key, stack, unit, head)
        start = [max(0, int(column)) for column in first]
        queries = range(len(result.queries))[start[0] : start[0] + most]
        of_first, of_other = (
            values[:, start[1] : start[1] + most] for values in self._matrix(result, layer, head, queries)
        )
        return result, np.stack([of_first, of_other, of_first - of_other])

    def default_query(self, stack: str, queries: Alignment) -> int:
        """Return the column of a stack whose row is read without a pin."""
        return default_query(queries, causal=self.traces[0].is_causal(stack))

    @staticmethod
    def _matrix(result: Aligned, layer: int, head: int | str, queries: Sequence[int]) -> tuple[Float, Float]:
        """Return rows of a head of two maps [column of queries, column of keys]."""
        heads = result.sides[0].heads
        if layer not in result.sides[0].layers:
            raise IndexError(f"layer {layer} is not one of {listed(result.sides[0].layers)}.")
        if heads is None:
            return result.rows(layer, None, queries)
        if not isinstance(head, int) or head not in heads:
            raise IndexError(f"head {head!r} is not one of {listed(heads)}.")
        first, other = result.rows(layer, [head], queries)
        return first[0], other[0]


def default_query(queries: Alignment, *, causal: bool) -> int:
    """Return the column whose row is read without a pin.

    Where queries see later keys, it is the first word in which the texts differ and which both have. Without
    such a word, and in other models, it is the last word that both have.
    """
    columns = range(len(queries))
    both = [bool(column.first and column.second) for column in queries.columns]
    special = [queries.special(number) for number in columns]
    differing = [number for number in queries.differing if both[number] and not special[number]]
    if differing and not causal:
        return differing[0]
    labels = [queries.label(number, 0) for number in columns]
    return max(0, last_content(labels, [special[number] or not both[number] for number in columns]))


def two_texts_of(shown: Any) -> list[Any] | None:
    """Return two traces of two texts, or None for anything else.

    Traces of the same text by two models are not two texts, even if their tokens differ.
    """
    if not isinstance(shown, (list, tuple)) or len(shown) != 2 or not all(map(is_trace, shown)):  # noqa: PLR2004
        return None
    axes = [trace.axes()[0] for trace in shown]
    if axes[0].tokens == axes[1].tokens:
        return None
    has_tokenizer = all(trace.tokenizer is not None for trace in shown)
    if has_tokenizer and aligned_by(*shown) == "element":
        return list(shown)
    spelled = [
        "".join(
            letters(label)
            for label, special in zip(axis.units["token"].labels, axis.units["token"].special, strict=True)
            if not special
        )
        for axis in axes
    ]
    return None if spelled[0] == spelled[1] else list(shown)


def _within(column: int, count: int) -> int:
    if not 0 <= column < count:
        raise IndexError(f"query {column} is out of range: there are columns 0 to {count - 1}.")
    return int(column)
