"""LayerProfile: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets._selecting import position
from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.view import View
from attnwidgets.views.compare.compared import Compared
from attnwidgets.views.compare.items import layered_items
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Unpack

MOST = 12
"""So many lines a picture takes."""
_MANY_QUERIES = 64
"""Up to so many queries a page holds the lines of each."""


class LayerProfile(View):
    """What every layer says of a pair of tokens, or of a target and its cues: a line for each method.

    The pair is the pinned one; without a pin, the query whose state the prediction is read from, and its
    strongest source. Below stands the text, once to choose the target and once to choose sources: with Shift
    several, whose values are added (for rows of shares the dot product of Mohebbi et al. 2023). A token under
    the pointer, here or in a linked view, is tried at once. The selected layer is marked, a click selects
    one. Lines stand on one scale, or each on its own. What the filters leave out of a row is a gap in its
    line.

    Args:
        shown: Explanations with several layers: MixingMaps (heads are averaged), Attributions that say
            something of every layer (`.map`: their target's row); or a trace, or several, with `methods`.
        methods: For traces: names in `aw.methods()`, pairs (name, options) or functions of a trace; by
            default attention and rollout.
        names: Names of the lines; by default their titles.
        cues: Sources whose values are added while no single one is pinned: numbers or labels, counted in the
            unit of the first explanation.
        query: The query whose row is read, as in `MixingMap.to_attributions`; None: the pinned one.

    Raises:
        TypeError: Something is neither an explanation nor a trace.
        ValueError: Something has one layer, there are more than 12 lines, the texts differ, or there is no
            such cue.
        IndexError: There is no such cue or query.
    """

    _VIEW = "LayerProfile"
    _OPTIONS = FilterOptions
    PARTS = ("layers", "filters")
    _MARKS = "elements"

    def __init__(
        self,
        shown: Any,
        *,
        methods: Any = (),
        names: Sequence[str] | None = None,
        cues: Sequence[int | str] = (),
        query: int | str | None = None,
        **options: Unpack[FilterOptions],
    ) -> None:
        items = layered_items(shown, methods=methods, names=names)
        if len(items) > MOST:
            raise ValueError(f"LayerProfile() draws up to {MOST} lines, and was given {len(items)}.")
        self._compared = Compared(items, "row", query)
        super().__init__(self._compared.main("layer profile"), marks=self._places_of(cues), **options)

    @property
    def names(self) -> tuple[str, ...]:
        """What the lines are called."""
        return tuple(item.name for item in self._compared.items)

    def _places_of(self, cues: Sequence[int | str]) -> list[int]:
        labels = self._compared.axis.units[self._compared.unit].labels
        found = []
        for cue in [cues] if isinstance(cues, (str, int)) else cues:
            if not isinstance(cue, str):
                found.append(position(cue, range(len(labels)), self._compared.unit))
                continue
            places = [place for place, label in enumerate(labels) if cue.strip() == label.strip(" ␣▁")]
            if not places:
                raise ValueError(
                    f"cues: {cue!r} is none of the {self._compared.unit}s.{suggest(cue, labels)}"
                )
            found.extend(places)
        return list(dict.fromkeys(found))

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            "profile": Handler(
                self._profile,
                runs_model=self._compared.on_demand,
                for_page=self._for_page,
                prefetched=self._opening,
            )
        }

    def _opening(self) -> Iterable[dict[str, Any]]:
        """Yield what is looked at first; what takes long is a job that can be cancelled, not the cell's."""
        compared, pinned = self._compared, self.selection.pinned
        if compared.on_demand:
            return
        follows = compared.follows and pinned is not None and pinned.unit == compared.unit
        yield {"query": pinned.query if follows else None, "unit": compared.unit}

    def _profile(self, query: int | None, unit: str) -> tuple[dict[str, Any], list[bytes]]:
        """Return [line, layer, source] of one row: not a number where a method has no such layer."""
        compared = self._compared
        count = len(compared.axis.units[unit])
        found = np.full((len(compared.items), len(compared.layers), count), np.nan)
        has = [set(item.explanation.layers) for item in compared.items]
        shares = np.zeros(found.shape[:2], dtype=bool)
        for place, layer in enumerate(progress(compared.layers, desc="layers")):
            for index, vector in enumerate(compared.vectors(layer, query, unit)):
                if layer in has[index]:
                    found[index, place] = vector
                    shares[index, place] = compared.are_shares(index, vector)
        meta = {
            "names": list(self.names),
            "remarks": [item.note for item in compared.items],
            "layers": list(compared.layers),
            "query": query if query is not None or not compared.by_row else compared.default_query(unit),
            "follows": compared.follows,
            "rows": compared.by_row,
            "shares": [bool(one) for one in shares.ravel()],
            "alike": bool(shares[np.isfinite(found).any(axis=-1)].all()),
        }
        return meta, [found.astype("<f4").tobytes()]

    def _for_page(self) -> Iterable[dict[str, Any]]:
        compared = self._compared
        pinned = self.selection.pinned
        for unit in compared.units():
            if self._options["units"] and unit not in self._options["units"]:
                continue
            yield {"query": None, "unit": unit}
            count = len(compared.axis.units[unit])
            many = count > _MANY_QUERIES
            for query in range(count if compared.follows else 0):
                if not many or (pinned is not None and (pinned.query, pinned.unit) == (query, unit)):
                    yield {"query": query, "unit": unit}
