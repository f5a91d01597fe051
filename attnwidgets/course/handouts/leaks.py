"""Search a student's notebook for solutions and for the values of answers, in whichever notation."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import quoted
from attnwidgets.course.handouts.pictures import text_of_picture
from attnwidgets.course.handouts.secret_values import Secret, without_magics
from attnwidgets.course.reading.answers import Collector
from attnwidgets.course.reading.read_text import read_notebook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHORTEST = 10
"""Characters of a line that tells something: shorter lines, `)` or `else:`, are everywhere."""
_DIGITS = 3
"""Significant digits of a number that is not met by chance."""
_OF_OUTPUTS = 4
"""The same among the many numbers of outputs."""
_PAIR = 2
_NUMBER = re.compile(r"(?<![\w.])([-−]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s?(%?)(?!\w|\.\d)", re.IGNORECASE)
_WHOLE = r"(\d{1,6})"
_LAYER, _HEAD = rf"\blayers?\W{{0,4}}{_WHOLE}", rf"\bheads?\W{{0,4}}{_WHOLE}"
_PAIRS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?<![\w)\]])[(\[{{]\s*{_WHOLE}\s*[,;]\s*{_WHOLE}\s*,?\s*[)\]}}]",
        rf"(?<![\w.]){_WHOLE}\.{_WHOLE}(?!\w|\.\d)",
        rf"\bL\s?{_WHOLE}\W?\s?H\s?{_WHOLE}\b",
        rf"\banswer\s*=\s*{_WHOLE}\s*,\s*{_WHOLE}\b",
        rf"{_LAYER}(?:'s)?\W{{1,5}}(?:and\s)?{_HEAD}\b",
    )
)
_REVERSED = re.compile(rf"{_HEAD}\W{{1,5}}(?:(?:of|in|at|from|and)\s+(?:the\s+)?)?{_LAYER}\b", re.IGNORECASE)
_SERIES = re.compile(rf"(?<![\w.]){_WHOLE}(?:(?:\s*[,;]\s*|\s+)(?:and\s+)?\d{{1,6}})+(?!\w|\.\d)")


class _Text(NamedTuple):
    where: str
    text: str
    is_code: bool = False
    digits: int = _DIGITS
    """Significant digits by which a number in it is compared, if the answer has that many."""


def find_leak(
    notebook: dict[str, Any], secrets: Iterable[str], values: Iterable[Secret], allow: set[str]
) -> str:
    """Return a sentence on the first remainder of solutions and answers in a notebook, or "".

    Args:
        notebook: The student's version, as JSON.
        secrets: The text of solutions and keys, of which no line may be left.
        values: The values of answers, which may not be left in any notation.
        allow: Lines and values that may be there.
    """
    texts = list(_texts(notebook))
    answered = Collector("")
    read_notebook(json.dumps(notebook).encode(), answered)
    if answered.found:
        return f"an output or text holds the answer to {quoted(next(iter(answered.found)))}"
    allowed = {" ".join(line.split()) for line in allow}
    for where, text, is_code, _ in texts:
        if is_code and "feedback" not in allowed and _gives_feedback(text):
            return f"feedback= tells the answer in {where}; allow=['feedback'] lets it stay"
    single_spaced = [(where, " ".join(text.split())) for where, text, *_ in texts]
    for line in (line for secret in secrets for line in secret.splitlines()):
        short = " ".join(line.split())
        if len(short) < _SHORTEST or short.startswith(("import ", "from ", "#")) or short in allowed:
            continue
        for where, text in single_spaced:
            if short in text:
                return f"a line of a solution, {quoted(short)}, is left in {where}; allow=[...] lets it stay"
    return _left_value(texts, list(values), allowed)


def _left_value(texts: list[_Text], values: list[Secret], allowed: set[str]) -> str:
    numbers = [secret for secret in values if isinstance(secret.value, (int, float))]
    series = [secret for secret in values if isinstance(secret.value, tuple)]
    for where, text, is_code, least in texts:
        written = [*_written_numbers(text)] if numbers else []
        groups = [*_written_groups(text), *(_tuples_of(text) if is_code else ())] if series else []
        matches = [
            *((secret, as_written) for secret in numbers for as_written, number, digits in written
              if _is_number(secret.value, number, digits, least)),
            *((secret, as_written) for secret in series for as_written in _as_written(secret.value, groups)),
        ]  # fmt: skip
        for secret, as_written in matches:
            if as_written not in allowed and str(secret.value) not in allowed:
                return (
                    f"the answer {secret.value} of {secret.question} is left in {where}, as "
                    f"{quoted(as_written)}; allow=[...] lets it stay"
                )
    return ""


def _texts(notebook: dict[str, Any]) -> Iterator[_Text]:
    """Yield every text that a notebook has, with where it is."""
    for number, cell in enumerate(notebook["cells"], 1):
        is_code = cell["cell_type"] == "code"
        yield _Text(f"cell {number}", "".join(cell["source"]), is_code)
        for output in cell.get("outputs", []):
            for text in _strings(output):
                yield _Text(f"the output of cell {number}", text, digits=_OF_OUTPUTS)
        for part in ("attachments", "metadata"):
            for text in _strings(cell.get(part, {})):
                yield _Text(f"the {part} of cell {number}", text)
    for text in _strings(notebook.get("metadata", {})):
        yield _Text("the notebook's metadata", text)


def _strings(value: Any, kind: str = "") -> Iterator[str]:
    """Yield the texts in JSON, names of fields included; of a picture, those in its file."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = "".join(value)
    if isinstance(value, str):
        is_picture = kind.startswith("image/") and "svg" not in kind
        yield text_of_picture(value) if is_picture else value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield str(name)
            yield from _strings(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, kind)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield repr(value)


def _written_numbers(text: str) -> Iterator[tuple[str, float, int]]:
    """Yield the numbers in a text: as written, their values, and significant digits."""
    for match in _NUMBER.finditer(text):
        digits = len(re.sub(r"\D", "", match[1].casefold().partition("e")[0]).lstrip("0"))
        if digits >= _DIGITS:
            value = float(match[1].replace("−", "-"))
            yield match[0], value, digits
            if match[2]:
                yield match[0], value / 100, digits


def _is_number(secret: float, number: float, digits: int, least: int) -> bool:
    """Return whether a number that is written with so many digits is the secret, by at least `least`."""
    exact = len(re.sub(r"\D", "", repr(secret).partition("e")[0]).strip("0"))
    shared = min(exact, digits)
    if exact < _DIGITS or shared < min(exact, least):
        return False
    return float(f"{secret:.{shared}g}") == float(f"{number:.{shared}g}")


def _written_groups(text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the pairs and series of whole numbers in a text: as written, and their values."""
    for pattern in _PAIRS:
        for match in pattern.finditer(text):
            yield match[0], (int(match[1]), int(match[2]))
    for match in _REVERSED.finditer(text):
        yield match[0], (int(match[2]), int(match[1]))
    for match in _SERIES.finditer(text):
        group = tuple(map(int, re.findall(r"\d+", match[0])))
        if len(group) > _PAIR:
            yield match[0], group


def _as_written(value: tuple[Any, ...], groups: list[tuple[str, tuple[int, ...]]]) -> Iterator[str]:
    """Yield how a text writes whole numbers, more than two in any order, or all of several pairs."""
    if isinstance(value[0], tuple):
        written = {group: as_written for as_written, group in groups}
        if set(value) <= set(written):
            yield ", ".join(written[pair] for pair in value)
        return
    for as_written, group in groups:
        if group == value or (len(group) > _PAIR and sorted(group) == sorted(value)):
            yield as_written


def _tuples_of(code: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the tuples and lists of whole numbers in code, also those without brackets; indices are not."""
    nodes = list(ast.walk(_tree(code)))
    indices = {id(node.slice) for node in nodes if isinstance(node, ast.Subscript)}
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and id(node) not in indices:
            items = [item.value for item in node.elts if isinstance(item, ast.Constant)]
            if len(items) == len(node.elts) and all(type(item) is int for item in items):
                yield ast.unparse(node), tuple(items)  # type: ignore[arg-type] # they are


def _gives_feedback(code: str) -> bool:
    calls = (node for node in ast.walk(_tree(code)) if isinstance(node, ast.Call))
    return any(
        option.arg == "feedback"
        and not (isinstance(option.value, ast.Constant) and option.value.value is None)
        for call in calls
        for option in call.keywords
    )


def _tree(code: str) -> ast.Module:
    try:
        return ast.parse(without_magics(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])
