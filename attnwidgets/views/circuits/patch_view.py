"""The view of patching: shares of states, blocks and heads in the difference between two texts.

The maps are computed by `aw.circuits.patch`, before the view or by the request `more_patching`; chosen cells
are patched together by the request `patched_cells`. The last `_MOST_RUNS` of these runs stay in memory, and a
page answers the requests that were made before it was written.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from attnwidgets.circuits.claims.writing import role_entry
from attnwidgets.circuits.patching import DIRECTIONS, Direction, Patching
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.circuits.circuit_view import (
    NAMED,
    CircuitView,
    between,
    is_between,
    outcomes_of,
    patching_answer,
)
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.circuits.patch import PatchedCells
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Answer

    Key = tuple[Direction, bool]
    """Direction of a patching, and whether it is an estimate."""

OPENING_WORK = 5e10
"""Multiplications that opening the view may take in its cell; more work becomes a background job."""
_MOST_RUNS = 64
_SITES = ("state", "attention", "mlp", "head")


class PatchView(CircuitView):
    """The share of every state, block and head in the difference between two texts, by patching.

    Both texts stand on top, with the tokens in which they differ marked. Below are maps of shares, layers by
    tokens for states, attention and MLPs, and layers by heads, all on the same scale: 0 is the page, 1 brings
    the whole difference. Tokens before the first difference are folded: they are the same in both runs.

    A click on a cell shows the target before and after, and, with a kernel, the predictions with this cell
    patched. Shift + click or a drag chooses several, which are patched together. `denoise`, `noise` and
    `estimate` change the direction, or show the estimate with the cells where it was checked; a missing
    direction or estimate is computed. Layer, head and token go along with the other views of the clean text.

    A page without a kernel (`to_html`) holds the shares, and the predictions for the cells that were chosen.

    Args:
        shown: Result of `aw.circuits.patch`.
        more: Other results of the same two texts, such as the other direction or the estimate.
        others: The same, as a list.
        cells: Cells that are chosen at first, as `aw.circuits.patch_cells` takes them; None: the head that
            carries most, or the attention or MLP without heads.

    Raises:
        TypeError: `shown` or another result is not a patching.
        ValueError: The others are of other texts or targets, or a cell has another form.
        IndexError: The layer, token or head is out of range.
    """

    _VIEW = "PatchView"
    NEEDS = Needs(("patch",))
    _HEIGHT = 540

    def __init__(
        self,
        shown: Any,
        *more: Any,
        others: Iterable[Any] = (),
        cells: Sequence[tuple[Any, ...]] | None = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        results = [result for item in (shown, *more, *others) for result in _patchings(item)]
        main = results[0]
        for result in results[1:]:
            _require_same_pair(main, result)
        self._both = shown if isinstance(shown, tuple) else None
        self._patchings: dict[Key, Patching] = {}
        for item in results:
            self._patchings.setdefault((item.direction, item.estimate), item)
        self._main = main
        self._cells = [_checked(cell, main) for cell in cells] if cells else _opening_cell(main)
        self._runs: dict[str, PatchedCells] = {}
        self._requested: dict[str, dict[str, Any]] = {}
        trace = None if main.pair is None else main.pair.clean
        super().__init__(main, trace, main.clean_tokens, main.shape[1], **options)

    def _own_options(self) -> dict[str, Any]:
        main, pair = self._main, self._pair_of_texts
        return {
            "direction": main.direction,
            "estimate": main.estimate,
            "cells": self._cells,
            "held": self._computed(),
            "runs": main.pair is not None,
            "claims": pair is not None and pair.clean.predictions_title == "next token",
            "ownTable": True,
        }

    @property
    def _pair_of_texts(self) -> Any:
        """The pair that a claim can be checked on, whose roles are words; None of pictures or sounds."""
        pair = self._main.pair
        is_text = pair is not None and pair.clean.picture is None and pair.clean.sound is None
        return pair if is_text else None

    def _computed(self) -> list[list[Any]]:
        """Return the directions that are computed, and whether they are estimates."""
        return [[direction, estimate] for direction, estimate in self._patchings]

    def patching(self, direction: Direction | None = None, *, estimate: bool | None = None) -> Patching:
        """Return a patching that the view shows, computed if it is missing.

        Args:
            direction: "denoise" or "noise"; None: the shown direction.
            estimate: Whether it is the estimate; None: as shown.

        Raises:
            ValueError: It is missing, and the view's result was loaded, so that nothing can be computed.
        """
        key: Key = (
            direction or self.options["direction"],
            bool(self.options["estimate"] if estimate is None else estimate),
        )
        if key not in self._patchings:
            pair = self._main.pair
            if pair is None:
                raise ValueError(
                    "this result was loaded without its traces, so that nothing more can be patched: call "
                    "aw.circuits.patch again, or pass the other result in others=."
                )
            sites: Any = self._main.sites
            self._patchings[key] = pair.patch(sites, key[0], estimate=key[1])
        return self._patchings[key]

    def share(self, cells: Sequence[tuple[Any, ...]] | None = None) -> float:
        """Return the share of the difference that cells carry, patched together in the shown direction.

        Args:
            cells: Cells, as `aw.circuits.patch_cells` takes them; None: those that are chosen.

        Raises:
            ValueError: The result was loaded without its traces.
        """
        chosen = self.options["cells"] if cells is None else [_checked(cell, self._main) for cell in cells]
        return self._patched(self.options["direction"], chosen).share

    # -- requests ----------------------------------------------------------------------------------

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            "csv": Handler(self._csv, for_page=lambda: ({},), prefetched=tuple),
            "patching": Handler(self._patching, for_page=self._arguments, prefetched=self._shown_arguments),
            "more_patching": Handler(self._more, runs_model=True),
            "patched_cells": Handler(
                self._cells_answer,
                runs_model=True,
                for_page=self._cells_for_page,
                prefetched=self._cells_at_opening,
            ),
        }

    def _arguments(self) -> list[dict[str, Any]]:
        return [{"direction": direction, "estimate": estimate} for direction, estimate in self._patchings]

    def _shown_arguments(self) -> list[dict[str, Any]]:
        """Return the requests of an opening view: every result, since a list compares both directions."""
        return self._arguments()

    def _patching(self, direction: Direction, estimate: bool) -> Answer:
        if (direction, estimate) not in self._patchings:
            raise LookupError(f"{direction} is not computed here.")
        return patching_answer(self._patchings[direction, estimate])

    def _more(self, direction: Direction, estimate: bool) -> Answer:
        if direction not in DIRECTIONS:
            raise ValueError(f"direction={direction!r} is not one of {', '.join(map(repr, DIRECTIONS))}.")
        answer = patching_answer(self.patching(direction, estimate=bool(estimate)))
        self.add_options(held=self._computed())
        return answer

    def _patched(self, direction: Direction, cells: Sequence[Sequence[Any]]) -> PatchedCells:
        """Return the run with cells patched, from memory if it was run before."""
        pair = self._main.pair
        if pair is None:
            raise ValueError(
                "this result was loaded without its traces: call aw.circuits.patch again to run the model."
            )
        given_cells = [_as_given(_checked(_as_given(cell), self._main)) for cell in cells]
        key = repr((direction, given_cells))
        if key not in self._runs:
            self._runs[key] = pair.patch_cells(given_cells, direction)
            while len(self._runs) > _MOST_RUNS:
                del self._runs[next(iter(self._runs))]
        return self._runs[key]

    def _cells_answer(self, direction: Direction, cells: Sequence[Sequence[Any]]) -> Answer:
        """Answer with the target before and after, share, and the first outcomes before and after."""
        result = self._patched(direction, cells)
        pair = self._main.pair
        base = (
            ()
            if pair is None
            else (pair.corrupt if direction == "denoise" else pair.clean).predictions(NAMED)
        )
        self._requested[repr((direction, cells))] = {
            "direction": direction,
            "cells": [list(c) for c in cells],
        }
        share = None if result.share != result.share else result.share
        meta = {"share": share, "before": result.before, "after": result.after, "source": result.source}
        return meta | {"was": outcomes_of(base), "now": outcomes_of(result.predictions)}, []

    def _now(self) -> dict[str, Any]:
        """Return the arguments for the cells that are chosen, as the browser writes them."""
        options: dict[str, Any] = self.options or self._options
        return {"direction": options["direction"], "cells": [list(cell) for cell in options["cells"]]}

    def _cells_for_page(self) -> Iterator[dict[str, Any]]:
        if self._main.pair is None:
            return
        now = self._now()
        yield now
        yield from (request for request in list(self._requested.values()) if request != now)

    def _cells_at_opening(self) -> list[dict[str, Any]]:
        pair = self._main.pair
        if pair is None or not self._now()["cells"]:
            return []
        now = repr((self._now()["direction"], self._now()["cells"]))
        weights = sum(parameter.numel() for parameter in pair.clean.model.parameters())
        runs = 2 + 1  # both recorded runs, and the patched run
        is_short = runs * weights * len(self._main.clean_tokens) <= OPENING_WORK
        return [self._now()] if is_short or now in self._requested else []

    # -- numbers, table, figure --------------------------------------------------------------------

    def _numbers(self) -> Kinds:
        return {"share": self._share_paths, "claim": self._claim_paths}

    def _claim_paths(
        self, layer: int = 0, head: int = 0, cells: Sequence[Sequence[Any]] = ()
    ) -> Iterator[Path]:
        """Yield the code that checks a claim about a head, on this pair to begin with.

        Without `cells` the claim is that the head carries the difference to the last token. Between two
        cells it is about the head that carries most between them: that it moves the difference from the
        earlier token to the later, or, where the texts are the same at the earlier token, attends to it.
        """
        import attnwidgets

        pair = self._main.pair
        if pair is None:
            raise LookupError("this result was loaded without its traces, which a claim is checked on.")
        if pair.clean.tokenizer is None:
            raise LookupError("claims are checked on texts, and these traces are of token ids.")
        if self._pair_of_texts is None:
            raise LookupError("claims are checked on texts, and these traces are of a picture or a sound.")
        last, differs = len(self._main.clean_tokens) - 1, self._main.differs
        start, end = differs[0], last
        if cells:
            (layer, head), (start, end) = between(self._main, cells)
        entry = partial(role_entry, pair.clean.tokenizer, pair.clean.text)
        moves = not cells or start in differs
        roles: dict[str, Any] = {"changed": [entry(differs)]} if moves else {"earlier": [entry((start,))]}
        later = "last" if end == last else "later"
        if end != last:
            roles["later"] = [entry((end,))]
        verb = f"moves changed to {later}" if moves else f"attends from {later} to earlier"
        told = [item for item in (pair.target, pair.foil) if isinstance(item, str)]
        texts = (pair.clean.text, pair.corrupt.text, *(told if len(told) == len(("target", "foil")) else ()))
        code = f".circuits.claim({f'head {layer}.{head} {verb}'!r}).check("
        after = f", [{(texts if moves else texts[0])!r}], roles={roles!r}).view()"
        yield attnwidgets, code, pair.clean.model, ", ", pair.clean.tokenizer, after
        yield (f"aw{code}model, tokenizer{after}",)

    def _share_paths(
        self, direction: Direction, estimate: bool, cells: Sequence[Sequence[Any]]
    ) -> Iterator[Path]:
        import attnwidgets

        given_cells = [_as_given(cell) for cell in cells]
        patching = self._patchings.get((direction, bool(estimate)))
        if len(cells) == 1 and patching is not None:
            site, layer, token, head = cells[0]
            part = f".heads[{layer}, {head}]" if site == "head" else f".values[{site!r}][{layer}, {token}]"
            if token is None or site != "head":
                yield patching, f"{part}.item()"
                if self._both is not None:
                    yield self._both, f".{direction}{part}.item()"
                named = listed(direction, estimate=bool(estimate) or None)
                yield self, f".patching({named}){part}.item()"
                return
        pair = self._main.pair
        if pair is not None and all(
            isinstance(item, (str, int, type(None))) for item in (pair.target, pair.foil)
        ):
            after = f", {listed(given_cells, pair.target, foil=pair.foil, how=direction)}).share"
            yield attnwidgets, ".circuits.patch_cells(", pair.clean, ", ", pair.corrupt, after
        yield self, f".share({given_cells!r})"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments for the chosen cells, whose expression a page contains."""
        now = self._now()
        if len(now["cells"]) == 1 and now["cells"][0][0] == "head" and self._pair_of_texts is not None:
            yield {"of": "claim", "layer": now["cells"][0][1], "head": now["cells"][0][3]}
        if self._pair_of_texts is not None and is_between(now["cells"]):
            yield {"of": "claim", "cells": now["cells"]}
        if now["cells"]:
            options: dict[str, Any] = self.options or self._options
            estimate = bool(options["estimate"])
            yield {"of": "share", "direction": now["direction"], "estimate": estimate, "cells": now["cells"]}

    def _results(self) -> Iterable[Patching]:
        return self._patchings.values()

    def _name_of(self, result: Any) -> str:
        return f"{result.direction}{', estimate' if result.estimate else ''}"

    def describe(self) -> str:
        """Return the direction of patching and the cells with the largest shares, in words."""
        from attnwidgets.views.still.circuits import patching_words

        return patching_words(self.patching())

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.circuits import patching_sheet

        return patching_sheet(self, theme)


def _patchings(given: Any) -> list[Patching]:
    """Return the patchings in an argument: a single direction, or both.

    Raises:
        TypeError: It is something else.
    """
    result = list(given) if isinstance(given, (tuple, list)) else [given]
    for item in result:
        if not isinstance(item, Patching):
            raise TypeError(
                f"PatchView() shows the result of aw.circuits.patch, not {type(item).__name__}: "
                "aw.circuits.patch(clean, corrupt, target, foil=other)."
            )
    return result


def _require_same_pair(main: Patching, other: Patching) -> None:
    for name in ("clean_tokens", "corrupt_tokens", "target", "foil"):
        if getattr(main, name) != getattr(other, name):
            raise ValueError(
                f"PatchView(): the results have different {name.replace('_', ' ')}; make a view of each."
            )


def _opening_cell(main: Patching) -> list[list[Any]]:
    """Return the head that carries most; without heads, the cell that carries most after the first layer."""
    site = (
        "head"
        if main.heads is not None
        else next((item for item in ("attention", "mlp") if item in main.sites), "")
    )
    best = main.top(site or None, 1)
    if not best:
        return []
    cell = best[0]
    return [[cell.site, cell.layer, cell.token, cell.head]]


def _as_given(cell: Sequence[Any]) -> tuple[Any, ...]:
    """Return a cell (site, layer, token, head) as `patch_cells` takes it."""
    if len(cell) != len(("site", "layer", "token", "head")) or isinstance(cell, tuple):
        return tuple(cell)
    site, layer, token, head = cell
    if site != "head":
        return site, layer, token
    return (site, layer, head) if token is None else (site, layer, head, token)


def _checked(cell: Sequence[Any], main: Patching) -> list[Any]:
    """Return a cell as (site, layer, token, head).

    Raises:
        ValueError: It has another form.
        IndexError: The layer, token or head is out of range.
    """
    site, *numbers = tuple(cell) or ("",)
    is_head = site == "head"
    if site not in _SITES or len(numbers) not in ((2, 3) if is_head else (2,)):
        raise ValueError(
            'cells are (site, layer, token), ("head", layer, head) or ("head", layer, head, token), '
            f"not {cell!r}."
        )
    width = main.raw["head"].shape[1] if is_head and "head" in main.raw else None
    counts = [("layer", main.shape[1]), ("head", width) if is_head else ("token", len(main.clean_tokens))]
    counts += [("token", len(main.clean_tokens))]
    result = []
    for number, (axis, count) in zip(numbers, counts, strict=False):
        if number is not None and count is not None and not -count <= int(number) < count:
            raise IndexError(f"{axis} {number} is out of range: there are {axis}s 0 to {count - 1}.")
        result.append(number if number is None or count is None else int(number) % count)
    if is_head:
        layer, head, *token = result
        return [site, layer, token[0] if token else None, head]
    return [site, result[0], result[1], None]
