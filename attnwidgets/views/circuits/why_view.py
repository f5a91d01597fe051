"""The view of a score of attention: the parts of the query, those of the key, and the shares of their pairs.

A score is named by its address: stack, layer, head, query and key. The view reads it from the selection, and
the browser sends it with every request. Results stay in `_results` while stack, layer and kind of parts are
the same, since these share the states of all source tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._tables import csv_of
from attnwidgets.circuits.scores.bank import METHOD, has_bank
from attnwidgets.circuits.scores.cell import NAME, foil_of, read_cell
from attnwidgets.circuits.scores.features import FEATURE
from attnwidgets.circuits.scores.other_texts import in_other_texts
from attnwidgets.circuits.scores.result import Why
from attnwidgets.circuits.scores.why import BY, split_cell, states_of, usual_foil
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.opens_below import OpensBelow
from attnwidgets.views.circuits.why_others import SHOWN, ShownOthers, state_of_others
from attnwidgets.views.circuits.why_words import ShownWhy, in_quotes
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.circuits.scores.other_texts import OtherTexts
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer

    # Stack, layer, head, query, key.
    Address = tuple[str, int, int, int, int]

_STRONGEST = 10
"""Cells of the shown head that a page holds, besides the pinned cell."""
_MOST_RESULTS = 32  # results


class WhyView(OpensBelow):
    """Why a head reads a token: a score as parts of the query and parts of the key.

    On top is a sentence. Below it stand the parts of the query and those of the key, the largest first; each
    list sums to the score, and the lines between them, as wide as the share of their pair, sum to every row.
    Parts without a row are summed in a single row, with the shares that cancel. The same score stands on the
    right by groups of components, on a narrow page at the end; at the bottom is the attention without the
    largest parts, and without as many others at random.

    It follows the pinned cell of linked views, in the layer and head that they show. A click on a word makes
    it the key, with Shift the query. A part under the pointer lights its word, head or feature in linked
    views. **How?**, or h, opens below how the weight is computed. A page without a kernel holds the pinned
    cell and the ten largest of the head.

    Args:
        shown: Result of `aw.why`.
        texts: Other texts, whose tokens are compared on request; by default those of
            `Why.in_other_texts`.
        sae: An SAE whose features can be chosen as parts; by default that of the result.
        stats: The result of `aw.feature_stats` for it, by which features are called.

    Raises:
        TypeError: `shown` is something else.
    """

    _VIEW = "WhyView"
    _HEIGHT = 560
    BELOW = "NeuronView"
    NEEDS = Needs(("why",), matrices=False, typed_texts=False)

    def __init__(
        self,
        shown: Any,
        texts: Any = None,
        *,
        sae: Any = None,
        stats: Any = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        if not isinstance(shown, Why):
            raise TypeError(
                f"WhyView() shows the result of aw.why(trace, query, key, layer=..., head=...), not "
                f"{type(shown).__name__}."
            )
        self._given, self._other_texts = shown, texts
        given: tuple[Any, Any] = (shown.sae, shown.stats) if sae is None else (sae, stats)
        self._sae, self._stats = given
        self._others: dict[Address, OtherTexts] = {}
        self._results: dict[tuple[Any, ...], Why] = {}
        self._states: tuple[Any, Any] = (None, None)
        cell = shown.cell
        options["layer"], options["head"] = cell.layer, cell.head
        super().__init__(cell.trace, **options)
        address = cell.stack, cell.layer, cell.head, cell.query, cell.key
        if self.selection.pinned is None or self._shown_address() != address:
            self.selection.pinned = (cell.query, cell.key, "token")

    def _join(self, start: Mapping[str, Any]) -> Link:
        link = super()._join(start)
        # Scores are between tokens, of attention.
        self._options |= {"method": link.keys[0], "unit": "token", "stack": self._given.cell.stack}
        return link

    def _own_options(self) -> dict[str, Any]:
        given = self._given
        cell = given.cell
        words = cell.trace.axes(cell.stack)[0].units.get("word")
        # Letters of a single word are told apart by token only.
        several = words is not None and sum(not special for special in words.special) > 1
        kinds = ["word" if several else "token", BY[0], *([FEATURE] if self._sae is not None else [])]
        return {
            "by": given.by,
            "kinds": kinds if given.by in kinds else [given.by, *kinds],
            "foil": given.foil,
            "otherTexts": state_of_others(cell.trace, cell.stack, self._other_texts),
            "opens": {"layer": cell.layer, "head": cell.head, "query": cell.query, "key": cell.key},
        }

    def _opened(self, *_: Any) -> View:
        from attnwidgets.views.heads.neuron_view import NeuronView

        return NeuronView(self.content.trace)

    def _shown_address(self) -> Address:
        """Return the address of the shown score; the twin of `argsOf` in WhyView.ts."""
        opens, state = self._options["opens"], self.selection
        head = state.head if isinstance(state.head, int) else opens["head"]
        pinned, pair = state.pinned, (opens["query"], opens["key"])
        if pinned is not None and pinned.query >= 0 and pinned.key >= 0:
            axes = self.content.trace.axes(self._options["stack"])
            pair = tuple(
                min(axis.units[pinned.unit].spans[at]) for axis, at in zip(axes, pinned[:2], strict=True)
            )
        return (self._options["stack"], state.layer, head, *pair)

    def why(self, by: str | None = None) -> Why:
        """Return the score that is shown now.

        Args:
            by: Kind of parts, as in `aw.why`; None: as shown.

        Raises:
            ValueError: Nothing can be split, as in `aw.why`.
        """
        return self._why(*self._shown_address(), by or self.options["by"], self.options["foil"])

    def _why(
        self, stack: str, layer: int, head: int, query: int, key: int, by: str, foil: int | str | None
    ) -> Why:
        given, cell = self._given, self._given.cell
        request = (stack, layer, head, query, key, by, foil)
        opened = (cell.stack, cell.layer, cell.head, cell.query, cell.key, given.by, given.foil)
        if request == opened and not given.is_grouped:
            return given
        if request not in self._results:
            cell = read_cell(self.content.trace, query, key, layer, head, stack)
            if self._states[0] != (stack, layer, by):
                # States of all source tokens are large, so that only the last are stored.
                parts = (self._sae, self._stats) if by == FEATURE else (by,)
                self._states = (stack, layer, by), states_of(cell, *parts)
                self._results = {}
            while len(self._results) >= _MOST_RESULTS:
                del self._results[next(iter(self._results))]
            self._results[request] = split_cell(cell, foil_of(cell, foil), by, self._states[1])
        return self._results[request]

    def in_other_texts(self) -> OtherTexts:
        """Return tokens of other texts that the shown query would look at, or that would look at the key.

        Raises:
            ValueError: Nothing can be compared, as in `why.in_other_texts`.
        """
        return self._other(*self._shown_address())

    def _other(self, stack: str, layer: int, head: int, query: int, key: int) -> OtherTexts:
        address = (stack, layer, head, query, key)
        if address not in self._others:
            while len(self._others) >= _MOST_RESULTS:
                del self._others[next(iter(self._others))]
            cell = self._given.cell
            if address == (cell.stack, cell.layer, cell.head, cell.query, cell.key):
                self._others[address] = self._given.in_other_texts(
                    self._other_texts
                )  # which is saved with it
            else:
                cell = read_cell(self.content.trace, query, key, layer, head, stack)
                self._others[address] = in_other_texts(cell, self._other_texts)
        return self._others[address]

    def _answer_others(self, stack: str, layer: int, head: int, query: int, key: int) -> Answer:
        """Answer with tokens of other texts instead of a cell's: `ShownOthers` of others.ts."""
        other = self._other(str(stack), int(layer), int(head), int(query), int(key))
        return ShownOthers(other, in_quotes(other.words)).described(), []

    def _compares(self) -> bool:
        """Return whether other texts are shown."""
        stack, options = self._given.cell.stack, self.options or self._options
        return options["otherTexts"] == SHOWN and has_bank(self.content.trace, stack, self._other_texts)

    def _others_prefetched(self) -> Iterator[dict[str, Any]]:
        if self._compares():
            yield _request(self._shown_address())

    def _others_for_page(self) -> Iterator[dict[str, Any]]:
        if self._compares():
            names = tuple(_request(self._shown_address()))
            cells = (tuple(args[name] for name in names) for args in self._for_page())
            yield from (dict(zip(names, cell, strict=True)) for cell in dict.fromkeys(cells))

    def shown_others(self) -> ShownOthers | None:
        """Return the shown tokens of other texts; None if they are not compared."""
        if not self._compares():
            return None
        other = self.in_other_texts()
        return ShownOthers(other, in_quotes(other.words))

    def _shown(self, *request: Any) -> ShownWhy:
        *address, _, foil = request
        result = self._why(*request)
        by = BY[0]
        itself = result.by in (by, FEATURE)
        return ShownWhy(result, result if itself else self._by_component(result, (*address, by, foil)))

    def _by_component(self, result: Why, request: tuple[Any, ...]) -> Why:
        states = states_of(result.cell, BY[0])
        return split_cell(result.cell, foil_of(result.cell, request[-1]), BY[0], states)

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            "why": Handler(
                self._answer, runs_model=True, for_page=self._for_page, prefetched=self._prefetched
            ),
            METHOD: Handler(
                self._answer_others,
                runs_model=True,
                for_page=self._others_for_page,
                prefetched=self._others_prefetched,
            ),
        }

    def _answer(
        self, stack: str, layer: int, head: int, query: int, key: int, by: str, foil: int | str | None
    ) -> Answer:
        """Answer with the score of a cell: `ShownWhy` of why.ts."""
        foil = foil if foil is None or isinstance(foil, str) else int(foil)
        address = str(stack), int(layer), int(head), int(query), int(key)
        return self._shown(*address, str(by), foil).described(), []

    def _prefetched(self) -> Iterator[dict[str, Any]]:
        """Yield the request of the opening score, if it is the result that the view was given."""
        cell = self._given.cell
        address = (cell.stack, cell.layer, cell.head, cell.query, cell.key)
        if self._shown_address() == address and not self._given.is_grouped:
            yield _request(address, self._given.by, self._given.foil)

    def _for_page(self) -> Iterator[dict[str, Any]]:
        """Yield the requests that a page answers: the shown cell, then the largest of its head."""
        stack, layer, head, query, key = self._shown_address()
        options = self.options or self._options
        kinds = [options["by"], *(kind for kind in options["kinds"] if kind != options["by"])]
        maps = {item.stack or "self": item for item in self.content.explanations}
        weights = np.array(maps[stack].layer(layer)[head])
        axes = self.content.trace.axes(stack)
        for axis, apart in zip(axes, (weights, weights.T), strict=True):
            special = np.asarray(axis.units["token"].special, dtype=bool)
            if not special.all():
                apart[special] = 0
        order = np.argsort(-weights, axis=None, kind="stable")[: _STRONGEST + 1].tolist()
        cells = [(query, key), *(divmod(at, weights.shape[1]) for at in order)]
        for kind in kinds:
            for cell in list(dict.fromkeys(cells))[: _STRONGEST + 1]:
                yield _request((stack, layer, head, *cell), kind, options["foil"])

    def inside(self) -> dict[str, Any]:
        """Return how a view that shows this view names it to the browser, with the cells of a page."""
        by = self.options["by"]
        cells = [[*args.values()][:5] for args in self._for_page() if args["by"] == by]
        return {**super().inside(), "cells": cells}

    def _numbers(self) -> Kinds:
        return {"why": self._paths, METHOD: self._paths_of_others}

    def _paths_of_others(self, **address: Any) -> Iterator[Path]:
        """Yield the paths to the share of tokens of other texts that a key is above."""
        options = self.options or self._options
        texts: tuple[Any, ...] = (f".{METHOD}()",)
        if self._other_texts is not None:
            texts = (f".{METHOD}(", self._other_texts, ")")
        *paths, _ = self._paths(**address, by=options["by"], foil=options["foil"])
        for *path, last in paths:
            yield (*path, last.removesuffix(".total"), *texts, ".above_keys")
        yield self, f".{METHOD}().above_keys"

    def _paths(
        self, stack: str, layer: int, head: int, query: int, key: int, by: str, foil: Any
    ) -> Iterator[Path]:
        """Yield the paths to the total of a cell."""
        import attnwidgets

        result, trace = self._why(stack, layer, head, query, key, by, foil), self.content.trace
        if result is self._given:
            yield result, ".total"
        arguments = listed(query, key, layer=layer, head=head)
        named = {
            "by": None if by in (BY[0], FEATURE) else by,
            "stack": None if stack == trace.default_stack else stack,
        }
        more = "".join(f", {name}={value!r}" for name, value in named.items() if value is not None)
        more += "" if foil == usual_foil(result.sae) else f", foil={foil!r}"
        sae = (", by=", self._sae) if by == FEATURE else ()
        yield attnwidgets, f".{NAME}(", trace, f", {arguments}", *sae, f"{more}).total"
        yield attnwidgets.why, "(", trace, f", {arguments}", *sae, f"{more}).total"
        yield self, f".{NAME}().total"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        options = self.options or self._options
        yield {"of": "why", **_request(self._shown_address(), options["by"], options["foil"])}
        if self._compares():
            yield {"of": METHOD, **_request(self._shown_address())}

    def _csv(self, **_: Any) -> Answer:
        rows = self.why().to_rows()
        return csv_of([[*row] for row in rows[:1]] + [[*row.values()] for row in rows]), []

    def shown(self) -> ShownWhy:
        """Return the score that the view shows now, in numbers and words."""
        return self._shown(*self._shown_address(), self.options["by"], self.options["foil"])

    def describe(self) -> str:
        """Return the largest parts of query and key and the sum of all parts, in sentences."""
        from attnwidgets.views.still.whys import why_words

        return why_words(self.shown(), self.shown_others())

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.whys import why_sheet

        return why_sheet(self, theme)

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._given!r})"


def _request(address: Address, *split: Any) -> dict[str, Any]:
    """Return the arguments of a request: those of a cell, then parts and foil if it is to be split."""
    return dict(
        zip(("stack", "layer", "head", "query", "key", "by", "foil"), (*address, *split), strict=False)
    )
