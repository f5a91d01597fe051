"""DrawnView: a view without a browser, in words, as a small picture, and as a figure in a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets.explanations.viewable import PAGES
from attnwidgets.views.base.linked_view import LinkedView

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme, ThemeName
    from attnwidgets.views.wire.handlers import Answer


class DrawnView(LinkedView):
    """A view that is drawn by matplotlib as well; a view with a picture overrides `_still`."""

    options: Any  # of `View`
    to_html: Callable[..., Path]  # of `View`

    def describe(self) -> str:
        """Return this view in one or two sentences, from its numbers: layer, head and filters.

        They are those of `Explanation.describe`, and the alternative text of the static picture, of figures
        and for screen readers. No layer is computed for them.
        """
        from attnwidgets.views.presentation import words_of

        return words_of(self.presentation) if self.sources() else str(self.options["title"] or self._VIEW)

    def _png(self) -> bytes | None:
        """Return the figure as a small picture for viewers without widgets; None where nothing is drawn."""
        from attnwidgets.figures.theme import theme_of

        theme = theme_of("light")
        sheet = self._preview(theme)
        return None if sheet is None else sheet.png(theme)

    def save(
        self,
        path: str | Path,
        *,
        columns: Literal[1, 2] = 2,
        theme: ThemeName = "light",
        dpi: int = 300,
    ) -> Path:
        """Write a figure of this view: the selected layer, head and pinned cell, with the filters.

        The figure is the picture with its title and legend, without controls; it needs no browser. Its
        alternative text, `describe()`, is in the file. In an SVG and a PDF text stays text, and no label is
        ever read as a formula; settings of matplotlib do not matter. The view's menu saves the same figure.

        Args:
            path: The file; its suffix gives the format: ".svg", ".pdf" or ".png"; ".html" is the page that
                `to_html` writes.
            columns: How many columns of a page it is wide: 1 (3.3 inches) or 2 (6.9 inches).
            theme: The page's colours: "light" or "dark".
            dpi: Dots per inch of a PNG.

        Raises:
            TypeError: This kind of view draws nothing.
            ValueError: Another suffix, number of columns or theme.
        """
        from attnwidgets.views.still.saving import save_figure

        if Path(path).suffix.lower() in PAGES:
            return self.to_html(path)
        return save_figure(partial(self.figure, columns, theme), self._names, path, dpi=dpi)

    def figure(self, columns: int = 2, theme: str = "light") -> Figure:
        """Return this view, at its selection, as a matplotlib figure.

        Args:
            columns: How many columns of a page it is wide: 1 (3.3 inches) or 2 (6.9 inches).
            theme: The page's colours: "light" or "dark".

        Raises:
            TypeError: This kind of view draws nothing.
            ValueError: Another number of columns or theme.
        """
        from attnwidgets.figures.theme import theme_of

        colours = theme_of(theme)
        sheet = self._still(colours)
        if sheet is None:
            raise TypeError(
                f"{self._VIEW} draws nothing of its own that could be saved. Save a view of the numbers, "
                "such as aw.Heatmap, aw.TokenStrip or aw.Explorer."
            )
        return sheet.figure(columns, colours)

    def _still(self, theme: Theme) -> Sheet | None:
        """Return the parts of this view's figure; None of a view that draws nothing."""
        del theme
        return None

    def _preview(self, theme: Theme) -> Sheet | None:
        """Return the parts of a display's small picture; None if it would take running the model."""
        if self.needs.matrices and self.sources():
            shown = self.presentation
            if shown.layer not in shown.source.ready:
                return None
            if shown.source.large:  # no picture is worth reading every layer or drawing every word
                from attnwidgets.views.still.matrices import matrix_sheet

                return matrix_sheet(shown, theme)
        return self._still(theme)

    def _names(self) -> tuple[str, str]:
        """Return the title and the alternative text of a figure."""
        return str(self.options["title"]) or self._VIEW, self.describe()

    def _figure_file(self, format: str, columns: int = 2, theme: str = "light") -> Answer:  # noqa: A002
        """Answer with a figure as a file, in the format "svg", "pdf" or "png"; see `save`."""
        from attnwidgets.views.still.saving import figure_bytes

        draw = partial(self.figure, columns, theme)
        return {"format": format}, [figure_bytes(draw, self._names, f".{format}")]
