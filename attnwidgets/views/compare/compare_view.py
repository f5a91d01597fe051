"""The view that compares explanations of a text, strip by strip, and how they agree.

`Compared` (compared.py) aligns the explanations over shared elements and reads a vector from each; this view
answers requests for these vectors by layer and query, and for the matrices of agreement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._selecting import position
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import FilterOptions, write_out
from attnwidgets.views.base.view import View
from attnwidgets.views.compare.compared import Compared, nearest
from attnwidgets.views.compare.items import items_of
from attnwidgets.views.compare.text_pair import two_texts_of
from attnwidgets.views.compare.two_texts import TwoTexts
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Unpack

    from attnwidgets.evaluate.metrics.agreement_matrix import Agreement
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.wire.handlers import Answer

_MANY_QUERIES = 64
"""Up to this many queries, a page holds the row of each, in the layer it opens with."""

_LEAST = 2  # elements in a ranking


class CompareView(View):
    """A text under several methods, layers, heads or models: rows over a shared axis, and how they agree.

    Every row is coloured on a separate scale, or all on the same; the legend says which. At the right stand
    the value of the element under the pointer with its rank, the share of special tokens, and the sum of the
    row. Bars below show the difference of two rows, each in shares of its magnitudes, without special tokens
    that stand apart. A matrix shows how similarly every two of them rank the text's elements
    (`aw.evaluate.agreement`), with its caveats; click a cell to choose its two rows for the bars. Agreement
    is not faithfulness. Filters hide elements in every row; special tokens that are hidden or apart are not
    ranked either.

    A map is read as a vector: by default as the row of the pinned query (`how="row"`; without a pin, of the
    last token that is not special; a click in the text on top pins another), or by a scheme of
    `MixingMap.to_attributions`. A map of several layers follows the selected layer, and heads are averaged;
    the row says so.
    Explanations over different tokens (of other models) are compared by the words that they share, without
    special tokens.

    Args:
        shown: Explanations: MixingMaps and Attributions of a text, as a list or a mapping from names; or a
            trace, or several, with `methods`.
        more: Further traces or explanations, if `shown` is the first.
        methods: For traces: names in `aw.methods()`, pairs (name, options) or functions of a trace; by
            default attention and rollout.
        layers: A strip for each of these layers of every map; None: the selected layer.
        heads: A strip for each of these heads of every map; None: their mean.
        names: Names of the strips; by default their titles.
        how: How a map is read as a vector: "row", or a scheme of `MixingMap.to_attributions`.
        query: The query whose row is read, as in `MixingMap.to_attributions`; None: the pinned query.

    Raises:
        TypeError: `shown` contains something that is neither an explanation nor a trace.
        ValueError: There are fewer than 2 strips or more than 24, the texts differ (the first words that do
            are named), or an option is out of its range.
        IndexError: The layer, head or query is out of range.
    """

    _VIEW = "CompareView"
    NEEDS = Needs(("compare",), typed_texts=False)
    _OPTIONS = FilterOptions
    _HEIGHT = 500

    def __init__(
        self,
        shown: Any,
        *more: Any,
        methods: Any = (),
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        how: str = "row",
        query: int | str | None = None,
        **options: Unpack[FilterOptions],
    ) -> None:
        shown = [shown, *more] if more else shown
        items = items_of(shown, methods=methods, layers=layers, heads=heads, names=names)
        self._compared = Compared(items, how, query)
        super().__init__(self._compared.main(), **options)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the strips, from top to bottom."""
        return self._compared.names

    def agreement(
        self,
        measure: Literal["spearman", "kendall", "top_k"] = "spearman",
        *,
        layer: int | None = None,
        query: int | None = None,
        unit: str | None = None,
        special: bool = True,
        by: str = "value",
    ) -> Agreement:
        """Return the agreement of every two strips, as the matrix next to them shows it.

        Args:
            measure: "spearman", "kendall" or "top_k", as in `aw.evaluate.agreement`.
            layer: Layer of maps with several; None: the selected layer, or the nearest to it.
            query: Query whose row is read of a map; None: the default query.
            unit: Unit of the elements; None: the view's unit.
            special: Whether special tokens are ranked.
            by: "value" or "magnitude".

        Raises:
            ValueError, IndexError: As `aw.evaluate.agreement`, and if the layer or query is out of range.
        """
        from attnwidgets.evaluate.metrics.agreement import agreement

        compared = self._compared
        number = compared.layer(layer, self.selection.layer)
        options: Any = {"special": bool(special), "by": str(by)}
        return agreement(compared.attributions(number, query, unit or compared.unit), measure, **options)

    def value(
        self,
        strip: int | str,
        element: int,
        *,
        layer: int | None = None,
        query: int | None = None,
        unit: str | None = None,
    ) -> float:
        """Return the value of an element in a strip.

        Args:
            strip: Number of the strip from the top, or its name.
            element: The element's number, counted in `unit`.
            layer: Layer of maps with several; None: the selected layer, or the nearest to it.
            query: Query whose row is read of a map; None: the default query.
            unit: Unit of the elements; None: the view's unit.

        Raises:
            ValueError: The name of the strip is unknown.
            IndexError: The strip, element, layer or query is out of range.
        """
        compared = self._compared
        number = compared.layer(layer, self.selection.layer)
        values = compared.vectors(number, query, unit or compared.unit)[compared.index_of(strip)]
        return float(values[position(element, range(len(values)), unit or compared.unit)])

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"agreement": self._agreement_paths, "value": self._value_paths}

    def _value_paths(self, strip: int, element: int, layer: int, **at: Any) -> Iterator[Path]:
        named = {"layer": self._compared.layer(None, layer), **at}
        yield self, f".value({listed(self.names[strip], element, **named)})"

    def _agreement_paths(
        self, measure: str, row: int, col: int, layer: int, query: int | None, unit: str, **how: Any
    ) -> Iterator[Path]:
        number = self._compared.layer(None, layer)
        named = listed(measure, layer=number, query=query, unit=unit, **how)
        yield self, f".agreement({named}).matrix[{int(row)}, {int(col)}]"

    def _handlers(self) -> Mapping[str, Handler]:
        slow = self._compared.on_demand
        return {
            "strips": Handler(
                self._strips, runs_model=slow, for_page=self._for_page, prefetched=self._opening
            ),
            "agreement": Handler(
                self._agreement,
                runs_model=slow,
                for_page=lambda: self._rankings(self._for_page()),
                prefetched=lambda: self._rankings(self._opening()),
            ),
        }

    def _strips(self, layer: int, query: int | None, unit: str) -> Answer:
        """Answer with the value of every element in every strip [strip, element], float32."""
        compared = self._compared
        vectors = np.stack(compared.vectors(layer, query, unit))
        shares = [compared.are_shares(index, values) for index, values in enumerate(vectors)]
        meta = {
            "names": list(compared.names),
            "remarks": compared.remarks(layer),
            "maps": [item in compared.maps for item in compared.items],
            "signed": (vectors < 0).any(axis=1).tolist(),
            "shares": shares,
            "alike": len({item.explanation.method for item in compared.items}) == 1 or all(shares),
            "how": compared.how if compared.maps else "",
            "query": compared.query_in(query, unit),
            "follows": compared.follows,
        }
        return meta, [vectors.astype("<f4").tobytes()]

    def _agreement(self, layer: int, query: int | None, unit: str, *, special: bool, by: str) -> Answer:
        """Answer with the agreement of every two strips by every measure: values [strip, strip]."""
        from attnwidgets.evaluate.metrics.agreement import MEASURES, agreement

        vectors = self._compared.attributions(layer, query, unit)
        options: Any = {"special": bool(special), "by": str(by)}
        matrices = {measure: agreement(vectors, measure, **options) for measure in MEASURES}
        top = matrices["top_k"]
        meta = {
            "measures": {
                measure: {
                    "title": matrix.title,
                    "values": np.round(matrix.matrix, 4).tolist(),
                    "chance": round(matrix.chance, 4),
                    "paper": str(matrix.provenance["paper"]),
                }
                for measure, matrix in matrices.items()
            },
            "k": top.k,
            "warning": top.warning,
            "caveat": top.caveat,
        }
        return meta, []

    def _for_page(self) -> Iterator[dict[str, Any]]:
        """Yield the requests of a page: every layer, and of the opening layer every query of a short text."""
        compared = self._compared
        layers = compared.layers or (0,)
        pinned = compared.pinned(self.selection.pinned)
        for unit in compared.units(self._options["units"]):
            own_unit = unit == compared.unit
            for layer in layers:
                yield {"layer": layer, "query": None, "unit": unit}
                if pinned is not None and own_unit:
                    yield {"layer": layer, "query": pinned, "unit": unit}
            layer = nearest(layers, self.selection.layer)
            count = len(compared.axis.units[unit])
            for query in range(count if compared.follows and count <= _MANY_QUERIES else 0):
                if query != pinned or not own_unit:
                    yield {"layer": layer, "query": query, "unit": unit}

    def _opening(self) -> Iterator[dict[str, Any]]:
        """Yield the first request, unless it takes long: then it is a job that can be cancelled."""
        compared = self._compared
        if not compared.on_demand:
            layer = nearest(compared.layers or (0,), self.selection.layer)
            yield {"layer": layer, "query": compared.pinned(self.selection.pinned), "unit": compared.unit}

    def _rankings(self, requests: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the requests for agreement that go with requests for strips."""
        signed = any(item.explanation.signed for item in self._compared.items)
        for request in requests:
            flags = self._compared.axis.units[request["unit"]].special
            counts = {True: len(flags), False: len(flags) - sum(flags) if any(flags) else 0}
            for special in (special for special, count in counts.items() if count >= _LEAST):
                for by in ("value", "magnitude") if signed else ("value",):
                    yield {**request, "special": special, "by": by}

    def describe(self) -> str:
        """Return in a sentence which element each explanation is largest at, without computing layers."""
        from attnwidgets.views.still.comparisons import words_of_comparison

        if self._compared.on_demand:
            return (
                f"{', '.join(self._compared.names)} compared {self._compared.unit} by {self._compared.unit}."
            )
        return words_of_comparison(self)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.comparisons import compare_sheet

        return compare_sheet(self, theme)

    def _preview(self, theme: Theme) -> Sheet | None:
        return None if self._compared.on_demand else self._still(theme)


def compare(
    shown: Any,
    *more: Any,
    methods: Any = (),
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    how: str = "row",
    query: int | str | None = None,
    **options: Unpack[FilterOptions],
) -> CompareView | TwoTexts:
    """Return a view that compares explanations of a text (`CompareView`), or two texts (`TwoTexts`).

    Two traces of different texts are shown side by side, by the chosen one of `methods`; a mapping names
    them: `{"plural": one, "singular": other}`. It computes no scores: `aw.evaluate.compare` scores methods
    against each other, over many texts.

    Raises:
        TypeError, ValueError, IndexError: As `CompareView` and `TwoTexts`. `layers`, `heads`, `how` and
            `query` are for a single text.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.compare(trace, methods=["attention", "rollout", "value_zeroing"]).names
        ('attention', 'rollout', 'value zeroing')
        >>> he, she = (aw.trace(*aw.demo_model("encoder"), f"{name} said so.") for name in ("He", "She"))
        >>> type(aw.compare([he, she])).__name__
        'TwoTexts'
    """
    shown = [shown, *more] if more else shown
    texts = two_texts_of(list(shown.values()) if isinstance(shown, Mapping) else shown)
    if texts is not None:
        for name, given in {"layers": layers, "heads": heads, "query": query}.items():
            if given is not None:
                raise ValueError(f"{name}={given!r} is for one text; two texts are shown by TwoTexts.")
        return TwoTexts(texts, methods=methods, names=names or _names_of(shown), **options)
    return CompareView(
        shown, methods=methods, layers=layers, heads=heads, names=names, how=how, query=query, **options
    )


def _names_of(texts: Any) -> tuple[str, ...]:
    """Return the names of two texts: "A" and "B", or the keys of a mapping."""
    return tuple(map(str, texts)) if isinstance(texts, Mapping) else ("A", "B")


write_out(compare, FilterOptions, [CompareView])
