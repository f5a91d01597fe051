"""The base of the views of circuits: links to the views of texts, results for the browser, and claims."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._tables import csv_of
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.circuits.lens_result import Lens
    from attnwidgets.circuits.patching import Patching
    from attnwidgets.explanations.explanation import Explanation
    from attnwidgets.tracing.prediction import Prediction
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Answer

NAMED = 3
"""Outcomes that are listed before and after."""

_TWO = 2


class CircuitView(View):
    """A view of numbers by layer and token that are not a map: it shares the selection of its text.

    Args:
        shown: The result that it opens with.
        trace: The trace that it was made of; None in a result that was loaded.
        tokens: The tokens of its text.
        n_layers: Number of blocks of the model.
        **options: The options of every view.
    """

    NEEDS = Needs(matrices=False, typed_texts=False)  # its numbers are answers to requests

    def __init__(
        self,
        shown: Explanation,
        trace: Any,
        tokens: Sequence[str],
        n_layers: int,
        **options: Unpack[ViewOptions],
    ) -> None:
        self._shown = shown
        super().__init__(_stand_in(shown, tokens, n_layers) if trace is None else trace, **options)

    def _content_of(self, shown: Any, methods: Sequence[str], units: Sequence[str]) -> Content:
        return replace(super()._content_of(shown, methods, units), is_fixed=True)

    def _join(self, start: Mapping[str, Any]) -> Link:
        """Join the views of the text; their method does not matter here, and tokens are the unit."""
        link = super()._join(start)
        stacks = {source.stack for source in link.store.sources()}
        if self._shown.stack in stacks:
            self._options["stack"] = self._shown.stack
        self._options["unit"] = "token"
        return link

    def _results(self) -> Iterable[Explanation]:
        """Return the results that are shown, for a table."""
        raise NotImplementedError

    def _csv(self, **_: Any) -> Answer:
        named = [(self._name_of(result), row) for result in self._results() for row in result.to_rows()]
        head = [["result", *row] for _, row in named[:1]]
        return csv_of([*head, *([name, *row.values()] for name, row in named)]), []

    def _name_of(self, result: Any) -> str:
        """Return the name of a result in a table of several."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._shown!r})"


def _stand_in(shown: Explanation, tokens: Sequence[str], n_layers: int) -> MixingMap:
    """Return a map with the layers and tokens of a result without a trace, by which views are linked."""
    values = np.zeros((n_layers, 1, len(tokens)), dtype=np.float32)
    return MixingMap(
        values,
        query=[""],
        key=list(tokens),
        method=shown.method,
        trace_id=shown.trace_id,
        stack=shown.stack,
    )


def outcomes_of(predictions: Iterable[Prediction], most: int = NAMED) -> list[list[Any]]:
    """Return the first outcomes, each with its probability; numbers of a regression have none."""
    return [
        [prediction.label, prediction.probability]
        for prediction in list(predictions)[:most]
        if isfinite(prediction.probability)
    ]


def patching_answer(patching: Patching) -> Answer:
    """Return a patching: labels and both runs, and the changes of the target by patching each site.

    In meta: direction, estimate, sites, layers, clean and corrupt (the target in both runs), gap (null if the
    runs do not differ), cleanTokens, corruptTokens, differs, first (tokens before it are the same in both
    runs), target, foil, checked (rows of site, layer, token, head, estimate, exact), agreement, warning, and
    predicted: the first outcomes of the clean run, and of the corrupt run if it is recorded.

    Buffers: float32 m(patched) - m(base) [layer, token] of each site, of heads [layer, head].
    """
    pair = patching.pair
    corrupt = None if pair is None else outcomes_of(pair.corrupt.predictions(NAMED))
    meta = {
        "direction": patching.direction,
        "estimate": patching.estimate,
        "sites": list(patching.sites),
        "layers": patching.shape[1],
        "clean": patching.clean,
        "corrupt": patching.corrupt,
        "gap": _number(patching.gap),
        "cleanTokens": list(patching.clean_tokens),
        "corruptTokens": list(patching.corrupt_tokens),
        "differs": list(patching.differs),
        "first": first_changed(patching),
        "target": patching.target,
        "foil": patching.foil,
        "checked": [list(cell)[:-1] for cell in patching.checked],
        "agreement": _number(patching.agreement),
        "warning": patching.warning,
        "predicted": [outcomes_of(patching.predictions.items), corrupt],
    }
    return meta, [np.asarray(raw).astype("<f4").tobytes() for raw in patching.raw.values()]


def first_changed(patching: Patching) -> int:
    """Return the position before which no cell carries anything, because both runs are the same there."""
    first = patching.differs[0] if patching.differs else 0
    before = [raw[:, :first] for site, raw in patching.raw.items() if site != "head"]
    return 0 if any(np.nan_to_num(raw).any() for raw in before) else first


def lens_answer(lens: Lens) -> Answer:
    """Return a lens: its tokens, its answer, the names of all top tokens, and its numbers.

    In meta: answer, tokens, layers (rows of states, 1 less than the rows), labels (distinct names), k,
    title, warning. Buffers: float32 probability, entropy and kl, int32 rank, each [row, token]; int32 index
    of the name and int32 id, and float32 probability, each [row, token, k].
    """
    top = lens.top_tokens()
    k = len(top[0][0]) if top and top[0] else 0
    flat = [token for row in top for cell in row for token in cell]
    labels = list(dict.fromkeys(token.label for token in flat))
    indices = {label: index for index, label in enumerate(labels)}
    meta = {
        "answer": lens.answer,
        "tokens": list(lens.tokens),
        "layers": lens.shape[0] - 1,
        "labels": labels,
        "k": k,
        "title": lens.title,
        "warning": lens.warning,
        "predicted": outcomes_of(lens.predictions.items),
    }
    whole = [indices[token.label] for token in flat], [token.id for token in flat]
    return meta, [
        *(getattr(lens, name).astype("<f4").tobytes() for name in ("probability", "entropy", "kl")),
        lens.rank.astype("<i4").tobytes(),
        *(np.array(numbers, dtype="<i4").tobytes() for numbers in whole),
        np.array([token.probability for token in flat], dtype="<f4").tobytes(),
    ]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def is_between(cells: Sequence[Sequence[Any]]) -> bool:
    """Return whether cells (site, layer, token, head) are two cells of different tokens and layers.

    The twin of `isBetween` in js/src/views/circuits/patch/claimOf.ts.
    """
    if len(cells) != _TWO or any(site == "head" or token is None for site, _, token, _ in cells):
        return False
    (_, layer, token, _), (_, other, later, _) = sorted(cells, key=lambda cell: int(cell[1]))
    return bool(layer < other and token < later)


def between(patching: Patching, cells: Sequence[Sequence[Any]]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the head that carries most between two cells, and their tokens.

    Args:
        patching: A patching of heads.
        cells: Two cells (site, layer, token, None), that of the later layer at a later token.

    Returns:
        (layer, head) and (earlier token, later token).

    Raises:
        LookupError: Heads were not patched, or the cells are not two of this kind.
    """
    if not is_between(cells):
        raise LookupError(
            "a claim goes from a token to a later one in a later layer: choose two such places."
        )
    if patching.heads is None:
        raise LookupError("heads were not patched, so that none is known that lies between: patch them too.")
    first, second = sorted(cells, key=lambda cell: int(cell[1]))
    shares = np.nan_to_num(patching.heads[first[1] : second[1] + (second[0] != "state")])
    layer, head = np.unravel_index(int(np.abs(shares).argmax()), shares.shape)
    return (first[1] + int(layer), int(head)), (first[2], second[2])
