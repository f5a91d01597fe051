"""CompareView: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.base.options import FilterOptions, write_out
from attnwidgets.views.base.view import View
from attnwidgets.views.compare.compared import Compared
from attnwidgets.views.compare.items import items_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Unpack

_MANY_QUERIES = 64
"""Up to so many queries a page holds the row of each, at the layer it opens with."""

_LEAST = 2  # elements that can be ranked


class CompareView(View):
    """One text under several methods, layers, heads or models: strips below each other, and how they agree.

    Every strip is coloured on its own scale, or all on one; its legend says which. Beside them stands how
    alike every two rank the text's elements (`aw.agreement`), with what that does not show; a click on a cell
    brings its two strips together, with the difference of their shares. Agreement is not faithfulness.
    Filters leave out elements of every strip; special tokens that are left out are not ranked either.

    A map is read as one vector: by default the row of the pinned query (`how="row"`; where nothing is pinned,
    of the token whose state the prediction is read from), else by a scheme of `MixingMap.to_attributions`.
    A map of several layers follows the selected layer, heads are averaged; both are said beside the strip.
    Explanations over different tokens (other models, of the same words) are compared by the words that they
    share, without special tokens.

    Args:
        shown: Explanations: MixingMaps and Attributions of one text, as a list or a mapping from names; or a
            trace, or several, with `methods`.
        methods: For traces: names in `aw.methods()`, pairs (name, options) or functions of a trace; by
            default attention and rollout.
        layers: One strip for each of these layers of every map; None: the selected layer.
        heads: One strip for each of these heads of every map; None: their mean.
        names: Names of the strips; by default their titles.
        how: How a map is read as one vector: "row", or a scheme of `MixingMap.to_attributions`.
        query: The query whose row is read, as in `MixingMap.to_attributions`; None: the pinned one.

    Raises:
        TypeError: Something is neither an explanation nor a trace.
        ValueError: Fewer than two strips, more than 24, texts that differ (the first words that do are
            named), or an option out of its range.
        IndexError: There is no such layer, head or query.
    """

    _VIEW = "CompareView"
    _OPTIONS = FilterOptions
    PARTS = ("compare", "filters")

    def __init__(
        self,
        shown: Any,
        *,
        methods: Any = (),
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        how: str = "row",
        query: int | str | None = None,
        **options: Unpack[FilterOptions],
    ) -> None:
        items = items_of(shown, methods=methods, layers=layers, heads=heads, names=names)
        self._compared = Compared(items, how, query)
        super().__init__(self._compared.main(), **options)

    @property
    def names(self) -> tuple[str, ...]:
        """What the strips are called, from top to bottom."""
        return tuple(item.name for item in self._compared.items)

    def _handlers(self) -> Mapping[str, Handler]:
        slow = self._compared.on_demand
        return {
            "strips": Handler(self._strips, runs_model=slow, for_page=self._places, prefetched=self._opening),
            "agreement": Handler(
                self._agreement,
                runs_model=slow,
                for_page=lambda: self._rankings(self._places()),
                prefetched=lambda: self._rankings(self._opening()),
            ),
        }

    def _strips(self, layer: int, query: int | None, unit: str) -> tuple[dict[str, Any], list[bytes]]:
        compared = self._compared
        vectors = np.stack(compared.vectors(layer, query, unit))
        place = query if query is not None or not compared.by_row else compared.default_query(unit)
        shares = [compared.are_shares(index, row) for index, row in enumerate(vectors)]
        meta = {
            "names": [item.name for item in compared.items],
            "remarks": compared.places(layer),
            "maps": [item in compared.maps for item in compared.items],
            "signed": [bool((row < 0).any()) for row in vectors],
            "shares": shares,
            "alike": bool(len({item.explanation.method for item in compared.items}) == 1 or all(shares)),
            "how": compared.how if compared.maps else "",
            "query": place,
            "follows": compared.follows,
        }
        return meta, [vectors.astype("<f4").tobytes()]

    def _agreement(
        self, layer: int, query: int | None, unit: str, *, special: bool, by: str
    ) -> tuple[dict[str, Any], list[bytes]]:
        from attnwidgets.evaluate.metrics.agreement import MEASURES, agreement

        vectors = self._compared.attributions(layer, query, unit)
        options: Any = {"special": bool(special), "by": str(by)}
        found = {measure: agreement(vectors, measure, **options) for measure in MEASURES}
        top = found["top_k"]
        meta = {
            "measures": {
                measure: {
                    "title": one.title,
                    "values": np.round(one.matrix, 4).tolist(),
                    "chance": round(one.chance, 4),
                    "paper": str(one.provenance["paper"]),
                }
                for measure, one in found.items()
            },
            "k": top.k,
            "warning": top.warning,
            "caveat": top.caveat,
        }
        return meta, []

    def _places(self) -> Iterable[dict[str, Any]]:
        """Yield what a page shows: every layer, and at the one it opens with every query of a short text."""
        compared = self._compared
        pinned = self._pinned()
        opening = self.selection.layer
        for unit in self._page_units():
            for layer in compared.layers or (0,):
                yield {"layer": layer, "query": None, "unit": unit}
                if pinned is not None and unit == compared.unit:
                    yield {"layer": layer, "query": pinned, "unit": unit}
            layer = min(compared.layers or (0,), key=lambda number: abs(number - opening))
            count = len(compared.axis.units[unit])
            for query in range(count if compared.follows and count <= _MANY_QUERIES else 0):
                if query != pinned or unit != compared.unit:
                    yield {"layer": layer, "query": query, "unit": unit}

    def _opening(self) -> Iterable[dict[str, Any]]:
        """Yield what is looked at first; what takes long is a job that can be cancelled, not the cell's."""
        compared, opening = self._compared, self.selection.layer
        if compared.on_demand:
            return
        layer = min(compared.layers or (0,), key=lambda number: abs(number - opening))
        yield {"layer": layer, "query": self._pinned(), "unit": compared.unit}

    def _rankings(self, places: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        signed = any(item.explanation.signed for item in self._compared.items)
        for place in places:
            flags = self._compared.axis.units[place["unit"]].special
            counted = {True: len(flags), False: len(flags) - sum(flags) if any(flags) else 0}
            for special in (s for s, count in counted.items() if count >= _LEAST):
                for by in ("value", "magnitude") if signed else ("value",):
                    yield {**place, "special": special, "by": by}

    def _pinned(self) -> int | None:
        pinned = self.selection.pinned
        wanted = pinned is not None and self._compared.follows and pinned.unit == self._compared.unit
        return pinned.query if wanted and 0 <= pinned.query < self._compared.n else None

    def _page_units(self) -> list[str]:
        offered = self._compared.units()
        return [name for name in offered if not self._options["units"] or name in self._options["units"]]


def compare(
    shown: Any,
    *,
    methods: Any = (),
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    how: str = "row",
    query: int | str | None = None,
    **options: Unpack[FilterOptions],
) -> CompareView:
    """Return a view (`CompareView`) that compares explanations of one text; it computes no scores.

    `aw.evaluate.compare` scores methods against each other, over many texts.

    Raises:
        TypeError, ValueError, IndexError: As `CompareView`.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.compare(trace, methods=["attention", "rollout", "value_zeroing"]).names
        ('attention', 'rollout', 'value zeroing')
    """
    return CompareView(
        shown, methods=methods, layers=layers, heads=heads, names=names, how=how, query=query, **options
    )


write_out(compare, FilterOptions, [CompareView])
