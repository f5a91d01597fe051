"""How views are linked: they share the store of numbers and the selection of their trace."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets._notebook import session
from attnwidgets.tracing.media.picture import with_media
from attnwidgets.views.base.opening import opening_of
from attnwidgets.views.base.selection import Selection
from attnwidgets.views.base.shared_models import SELECTIONS, STORES, offer_stand_in
from attnwidgets.views.wire.store import TileStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.needs import Needs
    from attnwidgets.views.base.opening import Opening
    from attnwidgets.views.wire.sources import Source


@dataclass(frozen=True)
class Link:
    """The store and the selection that a view shares with the others of its trace.

    Attributes:
        store: The numbers of the trace.
        selection: The selection of all views of the trace.
        keys: Keys of the methods that the view shows and offers, in the order of its menu.
        source: The source that the view opens with; None of a view without a trace.
    """

    store: TileStore
    selection: Selection
    keys: tuple[str, ...] = ()
    source: Source | None = None

    @classmethod
    def of(
        cls,
        content: Content,
        needs: Needs,
        holder: str,
        *,
        start: Mapping[str, Any],
        units: Sequence[str],
        first_unit: str,
        special: bool,
        preferred: Callable[[Opening], Opening],
    ) -> Link:
        """Join the views of a trace, and move their selection to the layer, head and unit given.

        Args:
            content: The explanations of the view, and the methods of its menu.
            needs: The matrices and pictures that it needs of the store.
            holder: Token of the view among those that use the store and the selection.
            start: "layer", "head" and "unit" that the view was given; None: nobody chose.
            units: Units that it offers; empty: all.
            first_unit: The unit that is shown if nobody has chosen another.
            special: Whether it shows special tokens in the map.
            preferred: Returns the opening that the view prefers, if it is the first of the trace and was
                given neither layer nor head.

        Raises:
            IndexError, ValueError: The layer, head or unit does not exist. The view has then joined nothing.
        """
        key = session(), content.trace_id
        store = STORES.get(key) or STORES.keep(key, TileStore())
        offer_stand_in(store, content.trace)
        with ExitStack() as undo:  # an error of the method, or an interrupt while it computes
            store.acquire(holder)
            undo.callback(store.release, holder)
            if needs.media and (pictured := content.trace or with_media(content.trace_id)) is not None:
                store.show_media(pictured)
            selection = SELECTIONS.get(key)
            opening = _opening(content, selection, start, first_unit)
            layer, head = start["layer"], start["head"]
            if selection is not None:
                layer = selection.layer if layer is None else layer
            elif layer is None and head is None:
                opening = preferred(opening)
                layer, head = opening.layer, opening.head
            keys = store.register(
                content.explanations,
                holder,
                needs,
                units=units,
                first=(layer, head),
                menu=content.menu,
                targetable=content.targetable,
                special=special,
                opens=start["unit"] or (first_unit if selection is None else selection.unit),
            )
            stack = content.main.stack or "self"
            source = next(s for s in store.sources() if (s.method, s.stack) == (keys[0], stack))
            if selection is None:
                selection = Selection(
                    store,
                    opening=opening,
                    layer=opening.layer,
                    head="-" if opening.head is None else opening.head,
                    unit=first_unit,
                    method=keys[0],
                    stack=source.stack,
                )
                SELECTIONS.keep(key, selection)
            selection.has_given_layer |= start["layer"] is not None
            selection.acquire(holder)
            undo.callback(selection.release, holder)
            for name, value in start.items():
                if value is not None:
                    setattr(selection, name, value)
            undo.pop_all()
        if selection.head == "-" and source.heads is not None:
            selection.head = source.heads[0]
            if opening.words:  # a head was searched for, since nobody chose a layer
                selection.opening, selection.layer, selection.head = opening, opening.layer, opening.head
        return cls(store, selection, tuple(keys), source)


def _opening(
    content: Content, selection: Selection | None, start: Mapping[str, Any], first_unit: str
) -> Opening:
    """Return where a view opens: where its linked views did, or by its map, layer and head."""
    opened = None if selection is None else selection.opening
    main, layer = content.main, start["layer"]
    if selection is not None and opened is not None:
        # If only views without heads opened before, no head was searched for yet.
        if opened.head is not None or getattr(main, "heads", None) is None:
            return opened
        if layer is None and (selection.has_given_layer or selection.layer != opened.layer):
            layer = selection.layer
    return opening_of(main, start["unit"] or first_unit, layer, start["head"])
