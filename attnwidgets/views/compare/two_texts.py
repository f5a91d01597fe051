"""The view of two texts side by side, and of their differences."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted
from attnwidgets._notebook import session
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.conservation_note import verdict_of
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.accepts import RECORDED
from attnwidgets.views.base.asks_why import AsksWhy
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.linked_view import MOST_EXPLAINED
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.shared_models import SELECTIONS
from attnwidgets.views.compare.text_pair import REDUCTIONS, TextPair
from attnwidgets.views.wire.axes import base_of, is_by_layer, method_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.tracing.text.alignment import Alignment
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.wire.handlers import Answer

WINDOW = 96
"""Columns of a map that are shown at once; of longer texts, a part."""
_PAGE_BYTES = 2_000_000


class TwoTexts(AsksWhy):
    """Two texts under the same method: their values in aligned columns, the difference, and both predictions.

    Tokens are aligned by edit distance, those of two tokenizers by the characters that they spell, and the
    columns in which the texts differ are framed. Attributions are two rows on the same scale, with bars of A
    less B below; both explain the same target, and the part of no token stands next to the parts of the
    tokens, so that the difference is accounted for. Of a map there is the row of the chosen query, or the two
    maps side by side with their difference. At the right are the probabilities of both, and a sentence on
    their change.

    A token of a single text counts whole. Click a column to pin it, a prediction to explain it in both
    texts; with Shift it becomes the foil. The view is linked to views of the first text; a pin is passed on
    to views of the second text, while a kernel runs.

    Args:
        shown: Two traces, in a list.
        more: The second trace, if `shown` is the first.
        names: Short names of the texts.
        methods: Methods the reader can choose from, by name, beginning with the method it opens with; empty:
            every method.
        target: The class or token that is explained in both texts, by number or name; None: the prediction
            of the first text, rather than that of the second.
        foil: The class or token that it is contrasted with.

    Raises:
        TypeError: `shown` is not two traces.
        ValueError: The traces have no stack in common, `names` are not two, or an option is out of range.

    Example:
        >>> model = aw.demo_model("classifier")
        >>> texts = [aw.trace(*model, f"The film was {word}.") for word in ("good", "not good")]
        >>> view = aw.TwoTexts(texts)
        >>> view.difference("attention").key_labels[4]
        '− not'
    """

    _VIEW = "TwoTexts"
    NEEDS = Needs(("texts", "filters"), typed_texts=False)
    _OPTIONS = FilterOptions
    _HEIGHT = 540
    _MANY_METHODS = True

    def __init__(
        self,
        shown: Any,
        *more: Any,
        names: Sequence[str] = ("A", "B"),
        methods: Sequence[str] = (),
        target: int | str | None = None,
        foil: int | str | None = None,
        **options: Unpack[FilterOptions],
    ) -> None:
        first, other = _two_traces([shown, *more] if more else shown)
        self._names_of_texts = _two_names(names)
        self._pair = TextPair(first, other, self._computed)
        if not self._pair.stacks():
            raise ValueError("TwoTexts(): the traces have no stack in common.")
        is_new = SELECTIONS.get((session(), first.id)) is None
        super().__init__(first, methods=methods, **options)
        self._choose(target, foil, contrasts=is_new)
        explains = self.store.explains
        if is_new and not methods and explains and len(first.tokens) <= MOST_EXPLAINED:
            with suppress(ValueError):  # a method that refuses these texts is grey in the menu
                self.selection.method = explains
        self.selection.observe(self._pass_on, names=["pinned"])

    def _choose(self, target: int | str | None, foil: int | str | None, *, contrasts: bool) -> None:
        """Explain a target rather than a foil: the given pair, or both predictions if they differ."""
        predicted = self._pair.predicted()
        if target is None and foil is None:
            if not contrasts or not predicted or predicted[0].id == predicted[1].id:
                return
            target, foil = (item.id for item in predicted)
        with self.selection.hold_sync():
            self.selection.foil = None
            if target is not None:
                self.selection.target = target
            self.selection.foil = foil

    @property
    def traces(self) -> tuple[Any, Any]:
        """The two traces, first the trace by which other views are linked."""
        return self._pair.traces

    def difference(
        self,
        method: str | None = None,
        *,
        stack: str | None = None,
        unit: str | None = None,
        head: str | None = None,
    ) -> Any:
        """Return the explanation of the first text less that of the second, by aligned columns.

        Args:
            method: Its key, as in `view.selection.method`, also with a target: "lrp@1-0". None: the method
                that is shown.
            stack: "encoder", "decoder" or "cross", where there are several; None: the stack that is shown.
            unit: The unit of the columns; None: the unit that is shown.
            head: A reduction over the heads of both maps first: "mean" or "max"; None: none.

        Raises:
            ValueError: The method does not support a text of the two, or an option is unknown.
        """
        state = self.selection
        key = _key(method or state.method)
        return self._pair.explained(
            key, stack or state.stack, unit or state.unit, "-" if head is None else head
        ).difference()

    def describe(self) -> str:
        """Return the differences of the texts and of their predictions in one or two sentences."""
        alignment = self._pair.alignments(self._pair.stacks()[0], "token")[0]
        changes = list(alignment.changes())
        differences = ", ".join(
            f"“{item or 'nothing'}” for “{other or 'nothing'}”" for item, other in changes[:3]
        )
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""  # noqa: PLR2004
        texts = " and ".join(quoted(trace.text) for trace in self._pair.traces)
        predicted = self._pair.predictions()["rows"]
        form = ".4g" if self._pair.traces[0].answer.is_numbers else ".0%"
        top = "".join(
            f" “{label}”: {item:{form}} and {other:{form}}." for _, label, item, other in predicted[:2]
        )
        return f"Two texts, {texts}: {differences or 'no difference'}{more}.{top}"

    # -- requests of the browser ---------------------------------------------------------------------

    def _own_options(self) -> dict[str, Any]:
        return {"names": list(self._names_of_texts), "window": WINDOW, "recorded": list(RECORDED)}

    def _handlers(self) -> Mapping[str, Handler]:
        answers: dict[str, Callable[..., Answer]] = {"rows": self._rows, "maps": self._maps}
        return {
            "texts": Handler(
                self._aligned_texts, for_page=self._stacks_and_units, prefetched=self._shown_texts
            ),
            "predictions": Handler(
                self._predictions, for_page=self._shown_outcomes, prefetched=self._shown_outcomes
            ),
            **{
                ("" if recorded else "computed_") + topic: Handler(
                    answer,
                    runs_model=not recorded,
                    for_page=partial(self._requests_of, topic, recorded=recorded),
                    prefetched=partial(self._first_of, topic, recorded=recorded),
                )
                for topic, answer in answers.items()
                for recorded in (True, False)
            },
        }

    def _aligned_texts(self, stack: str, unit: str) -> Answer:
        """Answer with the columns of queries and keys: `Texts` of js/src/views/compare/twoTexts/texts.ts."""
        queries, keys = self._pair.alignments(stack, unit)
        meta = {"keys": _columns(keys), "queries": None, "query": self._pair.default_query(stack, queries)}
        return meta | ({} if queries is keys else {"queries": _columns(queries)}), []

    def _predictions(self, target: int | None, foil: int | None) -> Answer:
        return self._pair.predictions(target, foil), []

    def _rows(
        self, method: str, stack: str, unit: str, layer: int, head: int | str, query: int | None
    ) -> Answer:
        """Answer with [A, B, A less B; column], float32, and the part of no token."""
        result, values, read = self._pair.rows(_key(method), stack, unit, layer, head, query)
        first, other = result.sides
        meta: dict[str, Any] = {"query": read, "shares": bool(getattr(first, "stochastic", False))}
        if isinstance(first, Attributions):
            have_rests = first.residual is not None and other.residual is not None
            meta |= {
                "rests": [float(side.residual) for side in result.sides] if have_rests else None,
                "verdict": verdict_of(first),
                "about": [first.targets[0], first.foil],
                "title": str(first.provenance.get("title") or first.method),
            }
        return meta, [values.astype("<f4").tobytes()]

    def _maps(
        self, method: str, stack: str, unit: str, layer: int, head: int | str, first: Sequence[int]
    ) -> Answer:
        """Answer with [A, B, A less B; query, key] from two columns on, float32."""
        result, values = self._pair.maps(_key(method), stack, unit, layer, head, (first[0], first[1]), WINDOW)
        meta = {"shape": list(values.shape[1:]), "shares": bool(result.sides[0].stochastic)}
        return meta, [values.astype("<f4").tobytes()]

    # -- requests that are answered in advance, for a page -----------------------------------------

    def _stacks_and_units(self) -> Iterator[dict[str, Any]]:
        shown = {(source.stack, source.unit): None for source in self.sources()}
        for stack, unit in shown:
            if stack in self._pair.stacks():
                yield {"stack": stack, "unit": unit}

    def _shown_texts(self) -> Iterator[dict[str, Any]]:
        yield {"stack": self.selection.stack, "unit": self.selection.unit}

    def _shown_outcomes(self) -> Iterator[dict[str, Any]]:
        target, foil = self.selection.target, self.selection.foil
        yield {"target": target and target.id, "foil": foil and foil.id}

    def _requests_of(self, topic: str, *, recorded: bool) -> Iterator[dict[str, Any]]:
        """Yield the requests of a page for a topic, those near to the shown map first."""
        state, room = self.selection, _PAGE_BYTES
        keys = {_key(state.method)} | ({s.method for s in self.sources()} if self.content.is_named else set())
        keys |= {s.method for s in self.sources() if base_of(s.method) == self.store.explains}
        # The unit that the page opens with comes first: the others may take all the room.
        for source in sorted(self.sources(), key=lambda source: source.unit != state.unit):
            if (
                is_by_layer(source.method)
                or source.method not in keys
                or source.stack not in self._pair.stacks()
            ):
                continue
            if (method_of(source.method) in RECORDED) != recorded:
                continue
            request = {"method": source.method, "stack": source.stack, "unit": source.unit}
            if source.attributions:
                if topic == "rows":
                    yield {**request, "layer": 0, "head": "-", "query": None}
                continue
            queries, keys_of = self._pair.alignments(source.stack, source.unit)
            whole = max(len(queries), len(keys_of)) <= WINDOW
            heads: list[Any] = ["-"] if source.heads is None else [*source.heads, *REDUCTIONS]
            heads.sort(key=lambda head: head != state.head)
            layers = sorted(source.ready, key=lambda layer: abs(layer - state.layer))
            for layer, head in dict.fromkeys(product(layers, heads)):
                size = 12 * (
                    min(len(queries), WINDOW) * min(len(keys_of), WINDOW) if topic == "maps" else len(keys_of)
                )
                room -= size
                if room < 0:
                    return
                if topic == "maps":
                    yield {**request, "layer": layer, "head": head, "first": [0, 0]}
                elif not whole:
                    yield {**request, "layer": layer, "head": head, "query": None}

    def _first_of(self, topic: str, *, recorded: bool) -> Iterator[dict[str, Any]]:
        """Yield the request that the view opens with."""
        state = self.selection
        for request in self._requests_of(topic, recorded=recorded):
            source = (request["method"], request["stack"], request["unit"])
            if source == (_key(state.method), state.stack, state.unit):
                yield request
                return

    # -- numbers -----------------------------------------------------------------------------------

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"difference": self._difference_paths}

    def _difference_paths(
        self,
        method: str,
        stack: str,
        unit: str,
        layer: int,
        head: int | str,
        query: int | None,
        column: int,
    ) -> Iterator[Path]:
        import attnwidgets

        key = _key(method)
        result = self._pair.explained(key, stack, unit, head)
        selected: dict[str, Any] = {}
        numbers = [column]
        if not isinstance(result.sides[0], Attributions):
            numbers.insert(0, self._pair.default_query(stack, result.queries) if query is None else query)
            selected["layer"] = layer if len(result.sides[0].layers) > 1 else None
            selected["head"] = head if isinstance(head, int) else None
        value = f".value({listed(*numbers, **selected)})"
        name, options = method_of(key), listed(**self._pair.options(key, stack))
        call = f"{', ' if options else ''}{options})"
        if head in REDUCTIONS and selected:
            call += f".{head}()"
        if unit != "token":
            call += f".to({unit!r})"
        first, other = self._pair.traces
        make = getattr(attnwidgets, name, None)
        if make is not None:
            yield (
                attnwidgets,
                f".{name}(",
                first,
                f"{call}.diff(",
                attnwidgets,
                f".{name}(",
                other,
                f"{call}){value}",
            )
            yield make, "(", first, f"{call}.diff(", make, "(", other, f"{call}){value}"
        how = head if head in REDUCTIONS and selected else None
        named = None if stack == "self" else stack
        yield self, f".difference({listed(key, stack=named, unit=unit, head=how)}){value}"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments for the pinned column, whose expression a page contains."""
        state, pinned = self.selection, self.selection.pinned
        for source in self.sources() if pinned is not None and pinned.key >= 0 else ():
            if (source.method, source.unit, source.stack) != (_key(state.method), pinned.unit, state.stack):
                continue
            queries, keys = self._pair.alignments(source.stack, source.unit)
            source_named = {"method": source.method, "stack": source.stack, "unit": source.unit}
            column = _column_of(keys, pinned.key)
            if source.attributions:
                at = {"layer": 0, "head": "-", "query": None}
            else:
                query = None if pinned.query < 0 else _column_of(queries, pinned.query)
                at = {
                    "layer": state.layer,
                    "head": "-" if source.heads is None else state.head,
                    "query": query,
                }
            yield {"of": "difference", **source_named, **at, "column": column}

    def _pinned_query(self) -> int | None:
        """Return the column of the pinned query; None without a pin."""
        state, pinned = self.selection, self.selection.pinned
        if pinned is None or pinned.query < 0 or pinned.unit != state.unit:
            return None
        return _column_of(self._pair.alignments(state.stack, state.unit)[0], pinned.query)

    # -- other views, and pictures -----------------------------------------------------------------

    def _computed(self, key: str, stack: str) -> Any:
        """Return a map of the first text that the store has computed, or None."""
        computed = [
            source for source in self.store.sources() if (source.method, source.stack) == (key, stack)
        ]
        return computed[0].explanation if computed and not computed[0].attributions else None

    def _pass_on(self, _: object) -> None:
        """Pin the elements of the pinned column in views of the second text."""
        other = SELECTIONS.get((session(), self._pair.traces[1].id))
        pinned, stack = self.selection.pinned, self.selection.stack
        if other is None or other is self.selection or self.comm is None or stack not in self._pair.stacks():
            return
        if pinned is None:
            other.pinned = None
            return
        pinned_there = []
        for index, alignment in zip(pinned, self._pair.alignments(stack, pinned.unit), strict=True):
            elements = alignment.columns[_column_of(alignment, index)].second if index >= 0 else ()
            pinned_there.append(elements[0] if elements else -1)
        other.pinned = None if max(pinned_there) < 0 else (*pinned_there, pinned.unit)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.comparisons import two_texts_sheet

        return two_texts_sheet(self, theme)

    def __repr__(self) -> str:
        return f"TwoTexts({self._pair.traces[0]!r}, {self._pair.traces[1]!r})"


def _columns(alignment: Alignment) -> dict[str, Any]:
    """Return the `Columns` of js/src/views/compare/twoTexts/texts.ts."""
    count = range(len(alignment))
    return {
        "elements": [
            [*(column.first[:1] or (-1,)), *(column.second[:1] or (-1,))] for column in alignment.columns
        ],
        "labels": [[alignment.label(number, side) for number in count] for side in (0, 1)],
        "same": [int(column.same) for column in alignment.columns],
        "special": [int(alignment.special(number)) for number in count],
    }


def _column_of(alignment: Alignment, element: int) -> int:
    """Return the column of an element of the first text."""
    return next(number for number, column in enumerate(alignment.columns) if element in column.first)


def _key(method: str) -> str:
    """Return a method's key at the input."""
    return method.removesuffix(":layers") if is_by_layer(method) else method


def _two_traces(shown: Any) -> tuple[Any, Any]:
    """Return two traces.

    Raises:
        TypeError: `shown` is something else.
    """
    given = list(shown) if isinstance(shown, (list, tuple)) else [shown]
    if len(given) != 2 or not all(map(is_trace, given)):  # noqa: PLR2004
        kinds = ", ".join(type(item).__name__ for item in given)
        raise TypeError(f"TwoTexts() shows two traces, [trace_a, trace_b], not {kinds or 'nothing'}.")
    return given[0], given[1]


def _two_names(names: Sequence[str]) -> tuple[str, str]:
    """Return the names of the texts.

    Raises:
        ValueError: They are not two different names.
    """
    given = [names] if isinstance(names, str) else [str(name) for name in names]
    if len(given) != 2 or len(set(given)) != 2:  # noqa: PLR2004
        raise ValueError(f"names={names!r} must be two different names, as in names=('he', 'she').")
    return given[0], given[1]
