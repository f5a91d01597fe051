"""Write docs/reference.md: the public names by question, each with its signature and first sentence."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attnwidgets as aw
from attnwidgets._facade import groups

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS = aw.methods()
PAGE = Path(__file__).with_name("reference.md")
HEAD = """# Reference

Every public name, by the question it answers, and the paper of every method. `help(aw.rollout)`, or
`aw.rollout?` in a notebook, documents parameters, shapes, units and errors, with an example.
`make reference` writes this page.
"""


def summary(item: Any) -> str:
    """Return the first sentence of a docstring, on one line."""
    said = (inspect.getdoc(item) or "").split("\n\n")[0]
    return " ".join(said.split()).replace("|", "\\|")


def parameters(item: Any) -> str:
    """Return the names of parameters as they are written in a call; keyword-only ones after an asterisk."""
    names: list[str] = []
    keyword_only = False
    for parameter in inspect.signature(item).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            names.append("\\*")
            keyword_only = True
        names.append({2: "\\*", 4: "\\*\\*"}.get(parameter.kind.value, "") + parameter.name)
    return ", ".join(names)


def rows(prefix: str, names: list[str], home: Any) -> Iterator[str]:
    """Yield a row of a table for every name but those of modules, which have tables of their own."""
    items = {name: item for name in names if callable(item := getattr(home, name))}
    if items:
        yield "| | |\n|---|---|"
    for name, item in items.items():
        call = "" if is_result(item) else f"({parameters(item)})"
        # A namespace may have a name that is a method's as well: aw.targets.attention.
        is_method = name in METHODS and (prefix == "aw." or not hasattr(aw, name))
        paper = f" *{METHODS[name].paper}*" if is_method and METHODS[name].paper else ""
        yield f"| **`{prefix}{name}`**{call} | {summary(item)}{paper} |"


def is_result(item: Any) -> bool:
    """Return whether a class is what functions return: nobody calls it."""
    return inspect.isclass(item) and not item.__module__.startswith("attnwidgets.views")


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for heading, names in groups().items():
        parts.append(f"## {heading}\n\n" + "\n".join(rows("aw.", names, aw)) + "\n")
        for space in (name for name in names if inspect.ismodule(getattr(aw, name)) and name != "compat"):
            module = getattr(aw, space)
            listed = "\n".join(rows(f"aw.{space}.", dir(module), module))
            parts.append(f"### `aw.{space}`\n\n{summary(module)}\n\n{listed}\n")
            for inner in (name for name in dir(module) if inspect.ismodule(getattr(module, name))):
                nested = getattr(module, inner)
                listed = "\n".join(rows(f"aw.{space}.{inner}.", dir(nested), nested))
                parts.append(f"### `aw.{space}.{inner}`\n\n{summary(nested)}\n\n{listed}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
