"""What stands in a document: the place of a view, and what a page holds for its views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from attnwidgets.views.page.escaping import json_text
from attnwidgets.views.page.packing import Packed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from docutils.nodes import Element


class ViewPlace(nodes.General, nodes.Element):
    """The place of a view: the name of its model, and what stands there without JavaScript and in print."""


class ViewData(nodes.Invisible, nodes.Element):
    """What a page holds for its views: packs, as `Packed` describes them."""


def visit_place(translator: Any, node: Element) -> None:
    """Write a place into a page, with what readers without JavaScript see."""
    height = f' style="min-height:{node["height"]:d}px"' if node.get("height") else ""
    translator.body.append(f'<div class="aw-view" data-model="{node["model"]}"{height}></div>\n<noscript>')


def depart_place(translator: Any, node: Element) -> None:
    """End what readers without JavaScript see."""
    del node
    translator.body.append("</noscript>\n")


def visit_data(translator: Any, node: Element) -> None:
    """Write into a page what it holds for its views; all of it is text that no browser runs."""
    held = joined(node["packs"])
    state = f'<script type="application/json" id="aw-state">{json_text(held.state)}</script>'
    translator.body.append("\n".join([state, *held.elements(first=True), *held.elements(first=False), ""]))
    raise nodes.SkipNode


def ignore(translator: Any, node: Element) -> None:
    """Write nothing: what a view's place contains stands for it."""
    del translator, node


def skip(translator: Any, node: Element) -> None:
    """Write nothing of a node."""
    ignore(translator, node)
    raise nodes.SkipNode


def joined(packs: Iterable[dict[str, Any]]) -> Packed:
    """Return several packs as one; no two of them share a name."""
    state: dict[str, Any] = {}
    blobs: dict[str, str] = {}
    first: frozenset[str] = frozenset()
    for one in packs:
        for name, value in one["state"].items():
            known = state.get(name, type(value)())
            state[name] = (
                value
                if isinstance(value, int)
                else {**known, **value}
                if isinstance(value, dict)
                else [*known, *value]
            )
        blobs |= one["blobs"]
        first |= frozenset(one["first"])
    return Packed(state, blobs, first, "")
