"""The view of a simpler model: its lost variance, the shape of every slot, pairs, and its worst texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import position
from attnwidgets.concepts.additive import Additive
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.standalone_view import TextsView, cut, number, numbers, said
from attnwidgets.views.concepts.concept_view import table_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import TitleOptions
    from attnwidgets.views.wire.handlers import Answer

_WORST = 12
_SHARES = 40  # that are listed
_CELLS = 900  # of the map of a pair that is drawn


class ShapeView(TextsView):
    """A model on a template as a sum over slots: the variance that it loses, and the effect of each level.

    The first line is the number that a generalised additive model hides: the share of the model's variance
    that a sum over slots loses. At the left is the effect of every level of every slot on the target; in the
    middle the share of each slot and pair, where a click on a pair shows it as a map; at the right the texts
    of which the sum is furthest from the model. A click on a level, a cell of the map or a text chooses it,
    and a text opens with a click. Where the template has more texts than were run, all numbers are called
    estimates.

    Args:
        shown: Result of `aw.concepts.distill`.
        pair: Names of the two slots whose map is shown at first; None: the pair with the largest share.
        linked: A view of a trace of the same model, such as `aw.Explorer(trace)`: a text that is opened is
            shown in it, and in the views that are linked with it. None: opening a text copies the line of
            Python that does.

    Raises:
        TypeError: `shown` is not a distilled model, or `linked` is not a view of a trace.
        ValueError: The pair is unknown.
    """

    _VIEW = "ShapeView"
    NEEDS = Needs(("concepts",))

    def __init__(
        self,
        shown: Any,
        *,
        pair: tuple[str, str] | None = None,
        linked: Any = None,
        **options: Unpack[TitleOptions],
    ) -> None:
        if not isinstance(shown, Additive):
            raise TypeError(
                f"ShapeView() shows the result of aw.concepts.distill, not {type(shown).__name__}."
            )
        self._student = shown
        self._pairs = [" x ".join(names) for names in shown.pairs]
        if pair is not None and tuple(pair) not in shown.pairs:
            pairs = ", ".join(map(repr, shown.pairs)) or "none: order=2 fits pairs"
            raise ValueError(f"pair={pair!r} is not one of {pairs}.{suggest(' x '.join(pair), self._pairs)}")
        shares = [np.nan_to_num(shown.shares.get(name, 0.0)) for name in self._pairs]
        largest = int(np.argmax(shares)) if shares else -1
        self._pair = largest if pair is None else self._pairs.index(" x ".join(pair))
        super().__init__(linked, **options)

    def _own_options(self) -> dict[str, Any]:
        return {**super()._own_options(), "pair": self._pair}

    @property
    def fidelity(self) -> float:
        """Share of the variance that a sum over slots explains (R2); it loses the rest."""
        return self._student.fidelity

    def share(self, name: str) -> float:
        """Return the share of the variance of a slot or of several, 0 to 1.

        Args:
            name: Name of the slot; several are joined with " x ".

        Raises:
            ValueError: The share is unknown.
        """
        shares = self._student.shares
        if name not in shares:
            raise ValueError(f"name={name!r} is not one of {', '.join(shares)}.{suggest(name, shares)}")
        return float(shares[name])

    def effect(self, slot: str, level: int, other: str | None = None, other_level: int = 0) -> float:
        """Return the effect of a level of a slot, or of a pair of levels beyond the effects of each.

        Args:
            slot: Name of the slot.
            level: Index of the level.
            other: Name of the second slot of a pair; None: the slot alone.
            other_level: Index of its level.

        Raises:
            ValueError: The slot or pair is unknown.
            IndexError: The level is out of range.
        """
        effects = self._student.shapes if other is None else self._student.pairs
        name: Any = slot if other is None else (slot, other)
        if name not in effects:
            raise ValueError(f"{name!r} is not one of {', '.join(map(repr, effects))}.")
        levels = (level,) if other is None else (level, other_level)
        values = effects[name]
        sizes = zip(levels, values.shape, strict=True)
        return float(values[tuple(position(at, range(size), "level") for at, size in sizes)])

    def _handlers(self) -> Mapping[str, Handler]:
        return {**super()._handlers(), "shapes": Handler(self._data)}

    def _data(self) -> Answer:
        """Answer with shapes, pairs, shares and the worst texts (`Shapes` of concepts/shapes.ts)."""
        shown = self._student
        shares = sorted(shown.shares.items(), key=lambda item: -np.nan_to_num(item[1], nan=-1.0))
        pairs = [
            {
                "slots": [list(shown.slots).index(name) for name in names],
                "values": [numbers(row) for row in grid],
            }
            if grid.size <= _CELLS
            else None
            for names, grid in shown.pairs.items()
        ]
        meta = {
            "target": cut(shown.target),
            "model": cut(shown.model),
            "summary": shown.summary,
            "mean": number(shown.mean),
            "fidelities": [number(shown.fidelities.get(order, np.nan)) for order in (1, 2)],
            "estimated": shown.estimated,
            "texts": len(shown.values),
            "slots": [
                {
                    "name": cut(name),
                    "levels": [cut(str(level)) for level in levels],
                    "values": numbers(shown.shapes[name]),
                }
                for name, levels in shown.slots.items()
            ],
            "pairs": pairs,
            "shares": [
                [cut(name), number(share), self._pairs.index(name) if name in self._pairs else -1]
                for name, share in shares[:_SHARES]
            ],
            "others": max(0, len(shares) - _SHARES),
            "worst": self._worst(),
            "notes": said(shown.notes),
        }
        return meta, []

    def _order(self) -> list[int]:
        """Return the numbers of the texts of which the student is furthest, the worst first."""
        errors = np.abs(self._student.student(order=1) - self._student.values)
        return [int(at) for at in np.argsort(-errors, kind="stable")[:_WORST]]

    def _worst(self) -> list[list[Any]]:
        worst = self._student.worst(_WORST)
        return [
            [at, cut(item.text), number(item.model), number(item.student)]
            for at, item in zip(self._order(), worst, strict=True)
        ]

    def _text(self, at: int) -> str:
        texts = range(len(self._student.values))
        return self._student.texts[position(at, texts, "text")]

    def _numbers(self) -> Kinds:
        return {
            "fidelity": self._fidelity_paths,
            "effect": self._effect_paths,
            "share": self._share_paths,
        }

    def _fidelity_paths(self) -> Iterator[Path]:
        """Yield the paths to the share of the variance that a sum over slots keeps."""
        yield self._student, ".fidelity"
        yield self, ".fidelity"

    def _share_paths(self, name: str) -> Iterator[Path]:
        """Yield the path to the share of a slot, pair, ... ."""
        self.share(str(name))
        yield self._student, f".shares[{str(name)!r}]"
        yield self, f".share({str(name)!r})"

    def _effect_paths(self, slots: list[int], levels: list[int]) -> Iterator[Path]:
        """Yield the paths to the effect of a level, or of a pair of levels, by their indices."""
        names = list(self._student.slots)
        slot_names = [names[position(int(at), range(len(names)), "slot")] for at in slots]
        indices = [int(at) for at in levels]
        if len(slot_names) == 1:
            yield self._student, f".shapes[{slot_names[0]!r}][{indices[0]}].item()"
            yield self, f".effect({listed(slot_names[0], indices[0])})"
        else:
            yield self._student, f".pairs[{tuple(slot_names)!r}][{indices[0]}, {indices[1]}].item()"
            yield self, f".effect({listed(slot_names[0], indices[0], slot_names[1], indices[1])})"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        yield {"of": "fidelity"}
        for at, levels in enumerate(self._student.slots.values()):
            for level in range(len(levels)):
                yield {"of": "effect", "slots": [at], "levels": [level]}

    def describe(self) -> str:
        """Return the variance that a sum over slots loses, and its largest parts, in words."""
        return repr(self._student)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.concepts.figures import additive_sheet

        del theme
        sheet = additive_sheet(self._student)
        return replace(sheet, title=str(self.options["title"]) or sheet.title)

    def _table(self) -> str:
        return table_of(self._student.to_rows())

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._student!r})"
