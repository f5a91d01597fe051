"""The view of a picture with maps over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._errors import require_choice
from attnwidgets.tracing.media.picture import with_media
from attnwidgets.views.base.asks_why import AsksWhy
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import PaletteOptions
from attnwidgets.views.media.handlers import on_grid_first, picture_handlers, units_on_grid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.wire.handlers import Handler


class ImageView(AsksWhy):
    """A picture, and over it the weights with which a patch reads the others, in a layer and head.

    It opens with the row of the class token. Click a patch to see its row, click it again, or `[CLS]` above
    the picture, to go back; "into" turns the map round: who reads the chosen patch. Class and
    register tokens are not part of the picture: they stand above it with the share that they take, so that
    nothing is renormalised. At the left is the map of every layer and head for the chosen token, at the right
    every head of the layer. Values are drawn patch by patch; "smoothed" interpolates between them, and says
    of how many values. "outline" draws a line around the fewest patches that hold a share of the map.

    Attributions have a map for every target: for and against it, transparent at zero. In a language model
    that reads a picture, and in cross-attention, words stand above the picture: click a word to see where it
    looks, or a patch to see which words read it.

    Norms are those of the states after each layer (Darcet et al. 2024), computed when they are first shown.
    With `registers`, a switch shows them as they are and with test-time registers.

    A page without a kernel holds the rows of class and register tokens and of the pinned patch; of small
    models the row of every patch.

    Args:
        shown: A trace of a picture; or its MixingMap or Attributions, which are drawn on the picture as long
            as the trace is in memory.
        queries: Patches, as (row, column), whose maps a page holds as well; "all" for every patch.
        registers: Register neurons, as `aw.vision.find_register_neurons` returns them or as (layer, unit),
            for norms with `aw.vision.test_time_registers`.

    Raises:
        ValueError: `shown` has no patches, `queries` names a query that does not exist, `registers` a unit
            that does not exist, or the trace with its model is missing.
    """

    _VIEW = "ImageView"
    _HEIGHT = 560
    _OPTIONS = PaletteOptions
    _MANY_METHODS = True
    NEEDS = Needs(("image",), matrices=False, media=True)

    def __init__(
        self,
        shown: Any,
        *,
        queries: Sequence[tuple[int, int]] | str = (),
        registers: Sequence[Any] = (),
        methods: Sequence[str] = (),
        **options: Unpack[PaletteOptions],
    ) -> None:
        self._queries = queries
        self._registers = tuple(registers)
        super().__init__(shown, methods=methods, **options)
        has_model = self.pictured is not None and self.pictured.model is not None
        self.add_options(canNorm=has_model, registers=bool(self._registers))

    def _content_of(self, shown: Any, methods: Sequence[str], units: Sequence[str]) -> Content:
        content = super()._content_of(shown, methods, units)
        on_grid = [item for item in content.explanations if units_on_grid(item)]
        if not on_grid:
            axes = [getattr(item, "axis", None) or item.key for item in content.explanations]
            if any(unit.boxes for axis in axes for unit in axis.units.values()):
                raise ValueError(
                    "ImageView() shows a picture in a single grid of patches, and this model reads several "
                    'views of it, or padding: aw.vision.sources(trace, by="hide") shows tokens view by view.'
                )
            raise ValueError(
                "ImageView() shows the patches of a picture, and this has none: give a trace of a picture, "
                "aw.trace(model, processor, image=picture), or a map made from one."
            )
        self.pictured = content.trace or with_media(content.trace_id)
        if self._registers:
            if self.pictured is None or self.pictured.model is None:
                raise ValueError(
                    "ImageView(registers=...) runs the model again: give the trace, with its model."
                )
            from attnwidgets.vision.test_time_registers import test_time_registers  # runs a model

            test_time_registers(self.pictured, self._registers)
        return on_grid_first(content)

    def _own_options(self) -> dict[str, Any]:
        on_grid = {
            explanation.stack or "self"
            for explanation in self.content.explanations
            if units_on_grid(explanation)
        }
        every = {explanation.stack or "self" for explanation in self.content.explanations}
        units = list(
            dict.fromkeys(
                name for explanation in self.content.explanations for name in units_on_grid(explanation)
            )
        )
        fixed = {"stack": next(iter(on_grid))} if len(on_grid) == 1 < len(every) else {}
        if len(units) == 1:  # whatever unit linked views show: only patches can be drawn
            fixed["unit"] = units[0]
        self._elements()
        return {**fixed, "units": self._options["units"] or units, "canNorm": False}

    def _elements(self) -> list[int]:
        """Return the elements of `queries`, checked."""
        main = self.content.main
        axis = getattr(main, "axis", None) or main.key
        unit = axis.units[units_on_grid(main)[0]]
        rows, columns = unit.grid or (0, 0)
        elements = {cell: element for element, cell in enumerate(unit.cells or ()) if cell is not None}
        if isinstance(self._queries, str):
            require_choice("queries", self._queries, ("all",))
            return list(elements.values())
        result = []
        for row, column in self._queries:
            if not (0 <= row < rows and 0 <= column < columns):
                raise ValueError(
                    f"ImageView(queries=...): no patch {(row, column)}; rows are 0 to {rows - 1}, "
                    f"columns 0 to {columns - 1}."
                )
            result.append(elements[row * columns + column])
        return result

    def _handlers(self) -> Mapping[str, Handler]:
        return picture_handlers(self, self.pictured, self._elements(), self._registers)

    def describe(self) -> str:
        """Return a sentence on the map that is shown over the picture."""
        from attnwidgets.views.still.patches import words_of_picture

        return words_of_picture(self)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.patches import picture_sheet

        del theme  # a picture looks the same in all themes
        return picture_sheet(self)
