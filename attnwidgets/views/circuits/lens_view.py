"""The view of a lens: the model's predictions after each layer, at every token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._errors import require_choice
from attnwidgets.circuits.lens_result import MEASURES, Lens, Measure
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.circuits.circuit_view import CircuitView, lens_answer
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Answer

    Key = tuple[bool, int | None]
    """Whether states are translated, and the id of the answer; None: the answer of the first lens."""


class LensView(CircuitView):
    """The predictions of a model that would stop after each layer: top tokens, layers by tokens.

    Row l is the input of block l, the last row the model's output. Cells hold the most probable token;
    their colour is the probability or the rank of the answer, the entropy, or the distance to the output.
    The curve next to it follows the rank of the answer at the chosen token, and the panel lists the most
    probable tokens of the chosen cell. Of a fitted lens, and with a kernel also of a plain lens that is
    passed along, `plain` and `fitted` show either.

    A click on a cell chooses it, here and in the other views of the text; a click on a token of the panel
    makes it the answer. Where there are more layers than rows, every second layer is folded up to the layers
    where the answer rises; the arrow keys still reach them. A page without a kernel holds the shown lenses.

    Args:
        shown: Result of `aw.circuits.lens`.
        others: Other lenses of the same text and answer, such as the plain lens for a fitted lens.
        color: Measure that colours show: "probability" or "rank" of the answer, "entropy" or "kl".
        token: Position of the token that is chosen at first; None: the last token.

    Raises:
        TypeError: `shown` or another result is not a lens.
        ValueError: The others are of another text or answer, or `color` is unknown.
        IndexError: The token is out of range.
    """

    _VIEW = "LensView"
    NEEDS = Needs(("lens",))
    _HEIGHT = 540

    def __init__(
        self,
        shown: Any,
        *,
        others: Iterable[Any] = (),
        color: Measure = "probability",
        token: int | None = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        require_choice("color", color, MEASURES)
        self._lenses: dict[Key, Lens] = {}
        for item in (shown, *others):
            if not isinstance(item, Lens):
                raise TypeError(
                    f"LensView() shows the result of aw.circuits.lens, not {type(item).__name__}."
                )
            if (item.tokens, item.answer, item.shape) != (shown.tokens, shown.answer, shown.shape):
                raise ValueError("LensView(): the lenses are of other texts or answers; make a view of each.")
            self._lenses.setdefault((is_fitted(item), None), item)
        count = len(shown.tokens)
        if token is not None and not -count <= token < count:
            raise IndexError(f"token={token} is out of range: the tokens are 0 to {count - 1}.")
        self._lens: Lens = shown
        self._color = color
        self._cell = [_opening_row(shown), (count - 1 if token is None else token) % count]
        trace = None if shown.made_of is None else shown.made_of[0]
        super().__init__(shown, trace, shown.tokens, shown.shape[0] - 1, **options)

    def _own_options(self) -> dict[str, Any]:
        return {
            "fitted": is_fitted(self._lens),
            "answer": None,
            "color": self._color,
            "cell": self._cell,
            "held": sorted({fitted for fitted, _ in self._lenses}),
            "kinds": self._kinds(),
            "runs": self._lens.made_of is not None,
            "ownTable": True,
        }

    def _kinds(self) -> list[bool]:
        """Return which lenses can be shown: plain (False), fitted (True)."""
        kinds = {fitted for fitted, _ in self._lenses}
        made_of = self._lens.made_of
        return sorted(kinds | ({False} if made_of is not None else set()))

    def lens(self, *, fitted: bool | None = None, answer: int | None = None) -> Lens:
        """Return a lens that the view shows, computed if it is missing.

        Args:
            fitted: Whether states are translated first; None: as shown.
            answer: Id of the token that is followed; None: the answer of the view's first lens.

        Raises:
            ValueError: It is not there, and nothing can be computed: the view's result was loaded, or has no
                translator.
        """
        key: Key = (bool(self.options["fitted"] if fitted is None else fitted), answer)
        if key not in self._lenses:
            from attnwidgets.circuits.lens import lens

            result = next(
                (item for (kind, _), item in self._lenses.items() if kind == key[0] and item.made_of),
                self._lens,
            )
            if result.made_of is None or (key[0] and result.made_of[1] is None):
                raise ValueError(
                    "this lens was loaded without its trace, or has no translator, so that no other can be "
                    "computed: pass it in others=."
                )
            trace, translator = result.made_of
            given: Any = result.answer_id if answer is None else int(answer)
            self._lenses[key] = lens(trace, given, translator=translator if key[0] else None)
        return self._lenses[key]

    # -- requests ----------------------------------------------------------------------------------

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            "csv": Handler(self._csv, for_page=lambda: ({},), prefetched=tuple),
            "lens": Handler(self._lens_answer, for_page=self._held, prefetched=self._held),
            "more_lens": Handler(self._more, runs_model=True, for_page=self._missing, prefetched=tuple),
        }

    def _held(self) -> list[dict[str, Any]]:
        return [{"fitted": fitted, "answer": None} for fitted in self._options["held"]]

    def _missing(self) -> list[dict[str, Any]]:
        """Return the requests that a page adds to the view's: the other lens, and chosen answers."""
        missing: list[Key] = [(kind, None) for kind in self._kinds()]
        chosen = (self.options or self._options)["answer"]
        missing += [(kind, chosen) for kind in self._kinds() if chosen is not None]
        given = {(fitted, None) for fitted in self._options["held"]}
        return [{"fitted": kind, "answer": answer} for kind, answer in missing if (kind, answer) not in given]

    def _lens_answer(self, fitted: bool, answer: int | None) -> Answer:
        if (fitted, answer) not in self._lenses:
            raise LookupError("this lens is not computed here.")
        return lens_answer(self._lenses[fitted, answer])

    def _more(self, fitted: bool, answer: int | None) -> Answer:
        return lens_answer(self.lens(fitted=bool(fitted), answer=answer))

    # -- numbers, table, figure --------------------------------------------------------------------

    def _numbers(self) -> Kinds:
        return {"lens": self._lens_paths}

    def _lens_paths(
        self, measure: Measure, fitted: bool, answer: int | None, row: int, token: int
    ) -> Iterator[Path]:
        require_choice("measure", measure, MEASURES)
        tail = f".{measure}[{int(row)}, {int(token)}].item()"
        lens = self._lenses.get((bool(fitted), answer))
        if lens is not None:
            yield lens, tail
        yield self, f".lens({listed(fitted=bool(fitted), answer=answer)}){tail}"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        options: dict[str, Any] = self.options or self._options
        row, token = options["cell"]
        shown = {"measure": options["color"], "fitted": options["fitted"], "answer": options["answer"]}
        yield {"of": "lens", **shown, "row": row, "token": token}

    def _results(self) -> Iterable[Lens]:
        return self._lenses.values()

    def _name_of(self, result: Any) -> str:
        return result.title

    def _current(self) -> Lens:
        """Return the lens that is shown now, if it is computed; else the view's first lens."""
        options: dict[str, Any] = self.options or self._options
        return self._lenses.get((bool(options["fitted"]), options["answer"]), self._lens)

    def describe(self) -> str:
        """Return from which layer on the answer is the most probable token, in words."""
        from attnwidgets.views.still.circuits import lens_words

        options: dict[str, Any] = self.options or self._options
        return lens_words(self._current(), int(options["cell"][1]))

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.circuits import lens_sheet

        return lens_sheet(self, theme)


def is_fitted(lens: Lens) -> bool:
    """Return whether a lens reads translated states."""
    return bool(lens.provenance["options"].get("translator"))


def _opening_row(lens: Lens) -> int:
    """Return the first row from which on the answer stays first at the last token, or the last row."""
    ranks = lens.rank[:, -1]
    below = [row for row in range(len(ranks)) if ranks[row] > 0]
    return min((below[-1] + 1) if below else 0, len(ranks) - 1)
