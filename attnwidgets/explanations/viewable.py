"""Viewable, the base of results that open in a widget by `.view()`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from attnwidgets._errors import require_choice
from attnwidgets._notebook import running_shell

PAGES = (".html", ".htm")
FOR_READING = (*PAGES, ".pdf", ".svg", ".png", ".csv")


class Viewable:
    """A result that a view can show.

    Attributes:
        kind: Name of the kind of result.
        viewed_by: The view that shows it, as "module:name" in `attnwidgets.views`, imported on first use; ""
            for results without a view.
    """

    kind: ClassVar[str]
    viewed_by: ClassVar[str] = ""
    figure: Any
    to_csv: Any

    def view(self, **options: Any) -> Any:
        """Return the widget that shows this result best.

        Args:
            **options: Options of the widget: `aw.Heatmap` for maps, `aw.TokenStrip` or
                `aw.views.RelevanceMap` for attributions, `aw.views.ScorecardView` for scores,
                `aw.FeatureStrip` or `aw.FeatureTable` for features, `aw.views.ConceptView`,
                `aw.views.InfluenceView` or `aw.views.ShapeView` for results of many texts.

        Raises:
            TypeError: If no view shows this kind of result.
        """
        if not self.viewed_by:
            raise TypeError(f"{self.kind} has no widget; display the result itself, or call .figure().")
        module, _, name = self.viewed_by.partition(":")
        return getattr(import_module(f"attnwidgets.views.{module}"), name)(self, **options)

    def save(self, path: str | Path) -> Path:
        """Write a file for reading: the page or the picture of the view, or the table.

        Args:
            path: The file; its suffix gives the format: `.html`, `.pdf`, `.svg`, `.png` or `.csv`.

        Returns:
            The path.

        Raises:
            ValueError: For any other suffix.
            TypeError: If the suffix is that of a page, and no view shows this kind of result.
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


def bundle_of(result: Viewable, **options: Any) -> Any:
    """Return the view of a result, where a kernel can show it, and text: for `_repr_mimebundle_`."""
    if not hasattr(running_shell(), "kernel"):
        return {"text/plain": repr(result)}
    return result.view()._repr_mimebundle_(**options)
