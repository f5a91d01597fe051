"""Search a student's notebook for what a solution or key holds."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted
from attnwidgets.course.reading.answers import Collector
from attnwidgets.course.reading.read_text import read_notebook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHORTEST = 10
"""Characters of a line that says something: shorter ones, `)` or `else:`, stand everywhere."""
_RULES = {"exact", "any_of", "overlap", "kendall", "near", "rubric"}
_DIGITS = 3
"""Significant digits of a number that is not met by chance."""
_PAIR = 2


def find_leak(notebook: dict[str, Any], secrets: Iterable[str], allow: set[str]) -> str:
    """Return a sentence on the first thing that is left of `secrets` in a notebook, or "".

    Args:
        notebook: The student's version, as JSON.
        secrets: The text of solutions and keys.
        allow: Lines and values that may be there.
    """
    words = list(_texts(notebook))
    answered = Collector("")
    read_notebook(json.dumps(notebook).encode(), answered)
    if answered.found:
        return f"an output or text holds the answer to {quoted(next(iter(answered.found)))}"
    allowed = {" ".join(line.split()) for line in allow}
    for secret in secrets:
        for line in secret.splitlines():
            short = " ".join(line.split())
            said = not short.startswith(("import ", "from ", "#")) and len(short) >= _SHORTEST
            where = _found(short, words) if said and short not in allowed else ""
            if where:
                return f"a line of a solution, {quoted(short)}, is left in {where}; allow=[...] lets it stay"
        for value in _values(secret):
            where = _found(value, words, whole=True) if value not in allowed else ""
            if where:
                return f"the answer {value} of a solution is left in {where}; allow=[...] lets it stay"
    return ""


def _texts(notebook: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where a text stands, and the text with single spaces."""
    for number, cell in enumerate(notebook["cells"], 1):
        yield f"cell {number}", " ".join("".join(cell["source"]).split())
        for output in cell.get("outputs", []):
            yield f"the output of cell {number}", " ".join(_strings(output))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from value.split()
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _found(wanted: str, texts: list[tuple[str, str]], *, whole: bool = False) -> str:
    pattern = re.escape(wanted)
    if whole:  # 0.84 is not found in 10.847
        pattern = rf"(?<![\w.]){pattern}(?![\w]|\.\d)"
    return next((where for where, text in texts if re.search(pattern, text)), "")


def _values(code: str) -> Iterator[str]:
    """Yield the values of answers in code as a text may give them: `(5, 9)` and `5.9`, `0.847`.

    Names are left alone: what can be chosen or put in order must be named.
    """
    try:
        tree = ast.parse(code)
    except SyntaxError:  # a text cell, or magics
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(_is_answer(target) for target in node.targets):
            yield from _forms(node.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _RULES:
            for argument in node.args:
                yield from _forms(argument)


def _is_answer(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == "answer"


def _forms(node: ast.expr) -> Iterator[str]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return
    if isinstance(value, float) and len(repr(value).replace(".", "").lstrip("-0")) >= _DIGITS:
        yield repr(value)
    if (
        isinstance(value, (tuple, list))
        and all(isinstance(item, int) for item in value)
        and len(value) >= _PAIR
    ):
        inside = ", ".join(map(str, value))
        yield from (f"({inside})", f"[{inside}]")
        if len(value) == _PAIR:
            yield f"{value[0]}.{value[1]}"
    elif isinstance(value, dict):
        for item in value:
            yield from _forms(ast.parse(repr(item), mode="eval").body)
