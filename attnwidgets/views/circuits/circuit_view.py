"""The base of the views of circuits: linked with the views of the text that they are about."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._tables import csv_of
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.explanations.explanation import Explanation
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Answer


class CircuitView(View):
    """A view of numbers by layer and token that are not a map: it shares the selection of its text.

    Args:
        shown: The result that it opens with.
        trace: The trace that it was made of; None in a result that was loaded.
        tokens: The tokens of its text.
        n_layers: Number of blocks of the model.
        **options: The options of every view.
    """

    NEEDS = Needs(matrices=False, typed_texts=False)  # it has numbers of its own

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
        """Return the name of one of several results in a table."""
        raise NotImplementedError

    def _png(self) -> bytes:
        from attnwidgets.figures.maps import small_png

        return small_png(self.figure())

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
