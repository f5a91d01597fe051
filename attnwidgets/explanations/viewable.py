"""Viewable, the base of results that open in a widget by `.view()`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from attnwidgets._errors import require_choice

PAGES = (".html", ".htm")
FOR_READING = (*PAGES, ".pdf", ".svg", ".png", ".csv")


class Viewable:
    """A result that a view can show.

    Attributes:
        kind: Name of the kind of result, which determines its view.
    """

    kind: ClassVar[str]
    figure: Any
    to_csv: Any

    def view(self, **options: Any) -> Any:
        """Return the widget that shows this result best.

        Args:
            **options: Options of the widget: `aw.Heatmap` for maps, `aw.TokenStrip` or `aw.RelevanceMap`
                for attributions, `aw.ScorecardView` for scores, `aw.FeatureStrip` or `aw.FeatureTable` for
                features, `aw.ConceptView`, `aw.InfluenceView` or `aw.ShapeView` for what many texts say.

        Raises:
            TypeError: If no view shows this kind of result.
        """
        from attnwidgets.views import view_of

        return view_of(self, **options)

    def save(self, path: str | Path) -> Path:
        """Write a file for reading: the page or the picture of the view, or the table.

        Args:
            path: The file; its suffix gives the format: `.html`, `.pdf`, `.svg`, `.png` or `.csv`.

        Returns:
            The path.

        Raises:
            ValueError: If the suffix is another one.
            TypeError: If it is that of a page, and no view shows this kind of result.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        require_choice("suffix", suffix, FOR_READING)
        if suffix == ".csv":
            self.to_csv(path)
            return path
        try:
            view = self.view()
        except TypeError:
            if suffix in PAGES:
                raise
            self.figure().savefig(path)
            return path
        view.save(path)
        view.close()
        return path
