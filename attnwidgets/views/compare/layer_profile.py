"""The view of a pair of tokens over layers: a line for each explanation, and scores of linear probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets._selecting import position
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.view import View
from attnwidgets.views.compare.compared import Compared
from attnwidgets.views.compare.items import layered_items
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.wire.handlers import Answer

    ProbeLines = tuple[tuple[str, NDArray[np.float64]], ...]

MOST = 12
"""Lines that a picture can show."""

_MANY_QUERIES = 64
"""Up to this many queries, a page holds the lines of each."""


class LayerProfile(View):
    """A pair of tokens, or a target and its cues, over layers: a line for each method.

    The pair is the pinned cell; without a pin, the last query that is not a special token, and its strongest
    source. The text below appears twice: to choose the target, and to choose sources. With Shift
    several sources are chosen, and their values are added (for rows of shares, the dot product of Mohebbi et
    al. 2023). A token under the pointer, here or in a linked view, is previewed. The selected layer is
    marked; click another to select it. Lines share a scale, or have separate scales. A value that the filters
    hide is a gap in its line.

    Args:
        shown: Explanations with several layers: MixingMaps (heads are averaged), Attributions that say
            something of every layer (`.map`: their target's row); or a trace, or several, with `methods`.
        methods: For traces: names in `aw.methods()`, pairs (name, options) or functions of a trace; by
            default attention and rollout.
        names: Names of the lines; by default their titles.
        cues: Sources whose values are added while no single source is pinned: numbers or labels, counted in
            the unit of the first explanation.
        query: The query whose row is read, as in `MixingMap.to_attributions`; None: the pinned query.
        probe: Result of `aw.evaluate.probe`, drawn along with them (Mohebbi et al. 2023): its accuracy
            and that of its baselines. At layer l stands the state that block l writes, layer l + 1 of
            `aw.concepts.states`.

    Raises:
        TypeError: `shown` contains something that is neither an explanation nor a trace, or `probe` is not
            a scorecard of a probe.
        ValueError: An explanation has only a single layer, there are more than 12 lines, the texts differ,
            the cue is unknown, or the probe has none of the layers.
        IndexError: The cue or query is out of range.
    """

    _VIEW = "LayerProfile"
    NEEDS = Needs(("layers",), typed_texts=False)
    _OPTIONS = FilterOptions
    _HEIGHT = 500
    _MARKS = "elements"

    def __init__(
        self,
        shown: Any,
        *,
        methods: Any = (),
        names: Sequence[str] | None = None,
        cues: Sequence[int | str] = (),
        query: int | str | None = None,
        probe: Any = None,
        **options: Unpack[FilterOptions],
    ) -> None:
        items = layered_items(shown, methods=methods, names=names)
        if len(items) > MOST:
            raise ValueError(f"LayerProfile() draws up to {MOST} lines, and was given {len(items)}.")
        self._compared = Compared(items, "row", query)
        self._probes = probe_lines(probe, self._compared.layers)
        super().__init__(self._compared.main("layer profile"), marks=self._places_of(cues), **options)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the lines."""
        return self._compared.names

    def value(
        self,
        line: int | str,
        sources: int | Sequence[int],
        *,
        layer: int | None = None,
        query: int | None = None,
        unit: str | None = None,
    ) -> float:
        """Return the value of a line in a layer: of a single source, or the sum over several.

        Args:
            line: Number of the line, or its name.
            sources: Numbers of the sources, counted in `unit`.
            layer: The layer; None: the selected layer.
            query: Query whose row is read; None: the default query.
            unit: Unit of the elements; None: the view's unit.

        Raises:
            ValueError: The name of the line is unknown.
            IndexError: The line, layer, source or query is out of range.
        """
        compared = self._compared
        row = compared.index_of(line)
        layers = compared.items[row].explanation.layers
        number = layers[position(self.selection.layer if layer is None else layer, layers, "layer")]
        values = compared.vectors(number, query, unit or compared.unit)[row]
        chosen = [sources] if isinstance(sources, int) else sources
        indices = [position(source, range(len(values)), unit or compared.unit) for source in chosen]
        return float(values[indices].sum())

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"value": self._value_paths}

    def _value_paths(self, line: int, sources: Sequence[int], **at: Any) -> Iterator[Path]:
        some = list(sources)
        yield self, f".value({listed(self.names[line], some if len(some) > 1 else some[0], **at)})"

    def _places_of(self, cues: Sequence[int | str]) -> list[int]:
        unit = self._compared.unit
        labels = self._compared.axis.units[unit].labels
        positions = []
        for cue in [cues] if isinstance(cues, (str, int)) else cues:
            if not isinstance(cue, str):
                positions.append(position(cue, range(len(labels)), unit))
                continue
            matches = [index for index, label in enumerate(labels) if cue.strip() == label.strip(" ␣▁")]
            if not matches:
                raise ValueError(f"cues: {cue!r} is not one of the {unit}s.{suggest(cue, labels)}")
            positions.extend(matches)
        return list(dict.fromkeys(positions))

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            "profile": Handler(
                self._profile,
                runs_model=self._compared.on_demand,
                for_page=self._for_page,
                prefetched=self._opening,
            )
        }

    def _opening(self) -> Iterator[dict[str, Any]]:
        """Yield the first request, unless it takes long: then it is a job that can be cancelled."""
        compared = self._compared
        if not compared.on_demand:
            yield {"query": compared.pinned(self.selection.pinned), "unit": compared.unit}

    def _profile(self, query: int | None, unit: str) -> Answer:
        """Answer with a row in every layer [line, layer, source], float32; NaN without such a layer."""
        compared = self._compared
        count = len(compared.axis.units[unit])
        values = np.full((len(compared.items), len(compared.layers), count), np.nan)
        shares = np.zeros(values.shape[:2], dtype=bool)
        for column, layer in enumerate(progress(compared.layers, desc="layers")):
            for index, vector in enumerate(compared.vectors(layer, query, unit)):
                if layer in compared.items[index].explanation.layers:
                    values[index, column] = vector
                    shares[index, column] = compared.are_shares(index, vector)
        meta = {
            "names": list(compared.names),
            "remarks": [item.note for item in compared.items],
            "layers": list(compared.layers),
            "beside": [
                [name, [float(value) if np.isfinite(value) else None for value in line]]
                for name, line in self._probes
            ],
            "query": compared.query_in(query, unit),
            "strongest": self._strongest(values, compared.query_in(query, unit), unit),
            "follows": compared.follows,
            "rows": compared.by_row,
            "shares": shares.ravel().tolist(),
            "alike": bool(shares[np.isfinite(values).any(axis=-1)].all()),
        }
        return meta, [values.astype("<f4").tobytes()]

    def _strongest(self, values: NDArray[np.float64], query: int | None, unit: str) -> int:
        """Return the source with the largest value of the first line in any layer.

        Special tokens and the query itself are left out.

        Args:
            values: [line, layer, source].
            query: The query whose row is read, if rows are of queries.
            unit: Unit of the elements.
        """
        sizes = np.nan_to_num(np.abs(values[0])).max(axis=0, initial=0.0)
        sizes[np.array(self._compared.axis.units[unit].special, dtype=bool)] = -1.0
        if query is not None:
            sizes[query] = -1.0
        return int(sizes.argmax())

    def _for_page(self) -> Iterator[dict[str, Any]]:
        compared, pinned = self._compared, self.selection.pinned
        for unit in compared.units(self._options["units"]):
            yield {"query": None, "unit": unit}
            count = len(compared.axis.units[unit])
            for query in range(count if compared.follows else 0):
                is_pinned = pinned is not None and (pinned.query, pinned.unit) == (query, unit)
                if count <= _MANY_QUERIES or is_pinned:
                    yield {"query": query, "unit": unit}

    def describe(self) -> str:
        """Return in a sentence in which layer each line is largest, without computing layers."""
        from attnwidgets.views.still.comparisons import words_of_profile

        if self._compared.on_demand:
            return f"{', '.join(self._compared.names)} over the layers."
        return words_of_profile(self)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.comparisons import profile_sheet

        return profile_sheet(self, theme)

    def _preview(self, theme: Theme) -> Sheet | None:
        return None if self._compared.on_demand else self._still(theme)


def probe_lines(card: Any, layers: Sequence[int]) -> ProbeLines:
    """Return the accuracy of a probe and of its baselines by layer of explanations, each with its name.

    An explanation's layer l is about block l, which writes the state that block l + 1 reads: layer l + 1 of
    states. Layers without such states are NaN.

    Args:
        card: A scorecard of `aw.evaluate.probe`; None: no lines.
        layers: Layers of the explanations.

    Raises:
        TypeError: The scorecard is not that of a probe.
        ValueError: It has none of these layers.
    """
    if card is None:
        return ()
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    if not isinstance(card, Scorecard) or card.method != "probe":
        raise TypeError(
            f"probe= takes the result of aw.evaluate.probe, not a {getattr(card, 'method', '') or ''} "
            f"{type(card).__name__}.".replace("  ", " ")
        )
    columns = {int(layer): index for index, layer in enumerate(card.x)}
    if not any(layer + 1 in columns for layer in layers):
        raise ValueError(
            f"probe= has states of layers {', '.join(map(str, columns))}; the blocks {min(layers)} to "
            f"{max(layers)} write the states {min(layers) + 1} to {max(layers) + 1}."
        )
    metric = card.metrics[0]
    lines = []
    for row, name in enumerate(card.methods):
        values = [card.mean[0, row, columns[item + 1]] if item + 1 in columns else np.nan for item in layers]
        lines.append((f"{name}: {metric}" if row == 0 else name, np.asarray(values, dtype=np.float64)))
    return tuple(lines)
