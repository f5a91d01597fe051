"""The other texts of a page's views: a view of each, shown when the text is chosen."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.texts import carry_over, options_for_another

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.views.base.view import View


@dataclass
class Group:
    """Views of a page that show the same text, and go to another text together.

    Attributes:
        shown: Index of the text that the page opens with.
        views: For each of them the views that stand for it, by text; None where it stays as it is.
    """

    shown: int
    views: list[list[View | None]] = field(default_factory=list)


@contextmanager
def other_texts(views: Sequence[View], *, live: bool = False) -> Iterator[list[Group]]:
    """Yield the groups of views whose text can be changed in a page, with views of their other texts.

    The views of other texts are closed at the end.

    Args:
        views: The views of the page.
        live: Whether texts can be typed in it: then every view of a trace is in a group.
    """
    groups: list[Group] = []
    made: list[View] = []
    grouped: set[int] = set()
    try:
        # Those with a menu of texts lead the others.
        for leader in sorted(views, key=lambda view: "texts" not in view.options):
            texts = leader._texts  # noqa: SLF001 - a page is a part of the views
            if texts is None or id(leader) in grouped or not (live or "texts" in leader.options):
                continue
            if not live and len(texts.traces) == 1:
                continue
            if live and not leader.needs.typed_texts:
                continue
            group = Group(texts.shown)
            for view in sorted(views, key=lambda view: view is not leader):
                goes_along = _goes_along(view, leader) and (view.needs.typed_texts or not live)
                # A question is about the text that the reader types into its view.
                goes_along |= live and leader in view.inner and view.store is leader.store
                if id(view) in grouped or not goes_along:
                    continue
                grouped.add(id(view))
                group.views.append(
                    [
                        view if index == texts.shown else _of_text(view, leader, index, made)
                        for index in range(len(texts.traces))
                    ]
                )
            groups.append(group)
        yield groups
    finally:
        for view in made:
            view.close()


def _goes_along(view: View, leader: View) -> bool:
    texts, leading = view._texts, leader._texts  # noqa: SLF001
    if texts is None or leading is None or texts.base is not leading.base or texts.trace is not leading.trace:
        return False
    return "texts" not in view.options or texts.traces == leading.traces


def _of_text(view: View, leader: View, index: int, made: list[View]) -> View | None:
    """Return a view like another of one of the leader's texts; None if there is none."""
    texts: Any = leader._texts  # noqa: SLF001
    rest, given = options_for_another(view)
    try:
        other = type(view)(texts.traces[index], *rest, **given)
    except Exception:  # noqa: BLE001 - its options fit only its first text, so it stays there
        return None
    made.append(other)
    if len(other.selection._users) == 1:  # noqa: SLF001 - no other view looks at this text
        carry_over(view.selection, view.store, other.selection, other.store)
    options = dict(other.options) | {"filters": view.options["filters"]}
    if "texts" in view.options:
        options["texts"] = texts.describe("", index)
    other.options = options
    return other
