"""The needs of a view: scripts, matrices and media; and the panels that a view is composed of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attnwidgets.views.wire.handlers import Handler


@dataclass(frozen=True)
class Needs:
    """The needs of a view, which its widget, its store, its pages and its pictures all read.

    Attributes:
        scripts: Names of scripts in `attnwidgets/static`, in addition to the core.
        matrices: Whether the view reads whole matrices from the store, not only answers to its requests.
        all_heads: Whether it opens with all heads of its layer.
        thumbnails: Whether it draws thumbnails of all heads.
        media: Whether it shows the picture or plays the sound of its trace.
        attribution_layers: Whether it shows the layers of attributions (`.map`).
        typed_texts: Whether a live page computes this view's numbers of a text that the reader types.
    """

    scripts: tuple[str, ...] = ()
    matrices: bool = True
    all_heads: bool = False
    thumbnails: bool = False
    media: bool = False
    attribution_layers: bool = False
    typed_texts: bool = True

    def __or__(self, other: Needs) -> Needs:
        """Return the needs of both together; `matrices` and `typed_texts` must suit both."""
        return Needs(
            tuple(dict.fromkeys((*self.scripts, *other.scripts))),
            matrices=self.matrices and other.matrices,
            all_heads=self.all_heads or other.all_heads,
            thumbnails=self.thumbnails or other.thumbnails,
            media=self.media or other.media,
            attribution_layers=self.attribution_layers or other.attribution_layers,
            typed_texts=self.typed_texts and other.typed_texts,
        )


@dataclass(frozen=True)
class Panel:
    """A part of a view, with its requests and options.

    Attributes:
        handlers: Returns the handlers of its requests by topic, made when the view opens.
        needs: Its needs, in addition to those of the rest of the view.
        options: Returns its options for the browser, once the view's explanations are resolved.
    """

    handlers: Callable[[], Mapping[str, Handler]]
    needs: Needs = Needs()
    options: Callable[[], Mapping[str, Any]] = dict
