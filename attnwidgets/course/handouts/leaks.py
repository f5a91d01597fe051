"""Search a student's notebook for solutions and for the values of answers, in text, code and pictures."""

from __future__ import annotations

import ast
import base64
import binascii
import json
import re
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import quoted
from attnwidgets.course.grading.rules import RULES, Rule
from attnwidgets.course.reading.answers import Collector, read_notebook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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

_PNG = b"\x89PNG\r\n\x1a\n"
_WORDS = re.compile(rb"[\t\n\r -~]{6,}")
_MOST_BYTES = 1_000_000

_MAGIC = re.compile(r"^\s*[%!?].*$", re.MULTILINE)


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
        allow: Lines and values that may stay.
    """
    texts = list(_texts(notebook))
    answered = Collector("")
    read_notebook(json.dumps(notebook).encode(), answered)
    if answered.answers:
        return f"an output or text holds the answer to {quoted(next(iter(answered.answers)))}"
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


def text_of_picture(encoded: str) -> str:
    """Return the text in a picture's file, given in base64: text chunks of PNG, else runs of characters."""
    try:
        data = base64.b64decode(encoded, validate=False)
    except binascii.Error:
        return encoded
    if not data.startswith(_PNG):
        return "\n".join(run.decode("ascii") for run in _WORDS.findall(data))
    texts, at = [], len(_PNG)
    while at + 8 <= len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if kind in (b"tEXt", b"zTXt", b"iTXt", b"eXIf"):
            texts.append(_text_of_chunk(kind, data[at + 8 : at + 8 + size]))
        at += 12 + size
    return "\n".join(texts)


def _text_of_chunk(kind: bytes, content: bytes) -> str:
    name, _, rest = content.partition(b"\0")
    if (kind == b"iTXt" and rest[:1] == b"\1") or kind == b"zTXt":
        packed = rest[1:] if kind == b"zTXt" else rest[2:].split(b"\0", 2)[-1]
        try:
            rest = zlib.decompressobj().decompress(packed, _MOST_BYTES)
        except zlib.error:
            rest = packed
    return f"{name.decode('latin-1')} {rest.replace(bytes(1), b' ').decode('utf-8', 'replace')}"


class Secret(NamedTuple):
    """The value of an answer: a number, a tuple of whole numbers, or a tuple of pairs."""

    question: str
    value: Any


def values_in_code(codes: Iterable[str]) -> tuple[list[Secret], list[str]]:
    """Return the values of answers and rules in code, and the questions whose values it computes.

    A value may be in a variable. Names are left alone, as a question must name its options.

    Args:
        codes: The text of solutions and keys.
    """
    constants: dict[str, Any] = {}
    secrets: list[Secret] = []
    seen: set[str] = set()
    computed: dict[str, None] = {}
    for question, node in _expressions(codes, constants):
        try:
            value = _literal(node.value if isinstance(node, ast.Starred) else node, constants)
        except (ValueError, TypeError):
            computed[question] = None
            continue
        seen.add(question)
        for item in value if isinstance(node, ast.Starred) else [value]:  # any_of(*heads)
            secrets.extend(_plain(question, item))
    return secrets, [question for question in computed if question not in seen]


def values_in_key(key: Mapping[str, Rule]) -> list[Secret]:
    """Return the values of the right answers of a key."""
    codes = [
        f"key = {{{question!r}: {rule.name}({', '.join(rule.arguments)})}}" for question, rule in key.items()
    ]
    return values_in_code(codes)[0]


def without_magics(code: str) -> str:
    """Return code without the lines that only IPython reads."""
    return _MAGIC.sub("pass", code)


def _expressions(codes: Iterable[str], constants: dict[str, Any]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the expressions of answers with their questions, and add the constants that come before them."""
    for code in codes:
        try:
            tree = ast.parse(without_magics(code))
        except (SyntaxError, ValueError):  # a text cell
            continue
        questions: dict[ast.AST, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                names = (name.value if isinstance(name, ast.Constant) else "" for name in node.keys)
                questions.update(zip(node.values, map(str, names), strict=True))
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and target.attr == "answer":
                        yield ast.unparse(target.value), node.value
                _add_constants(node, constants)
            elif isinstance(node, ast.Call):
                rule = getattr(node.func, "attr", getattr(node.func, "id", ""))
                yield from ((questions.get(node, rule), right) for right in _right_answers(rule, node))


def _add_constants(node: ast.Assign, constants: dict[str, Any]) -> None:
    for name in (target.id for target in node.targets if isinstance(target, ast.Name)):
        try:
            constants[name] = _literal(node.value, constants)
        except (ValueError, TypeError):  # noqa: PERF203 - a target at a time
            constants.pop(name, None)


def _right_answers(rule: str, call: ast.Call) -> list[ast.expr]:
    if rule in ("key_of", "order_of"):  # from scores, which are computed
        return [call]
    if rule not in RULES or rule == "rubric":
        return []
    return call.args[:1] if rule == "near" else call.args


def _literal(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """Return the value of an expression of constants and of variables that have one.

    Raises:
        ValueError, TypeError: It is computed.
    """
    return ast.literal_eval(_Filled(constants).visit(ast.parse(ast.unparse(node), mode="eval")))


class _Filled(ast.NodeTransformer):
    """Puts constants where their names are."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._constants:
            return node
        return ast.parse(repr(self._constants[node.id]), mode="eval").body


def _plain(question: str, value: Any) -> Iterator[Secret]:
    """Yield the numbers and the tuples of whole numbers that a right answer consists of."""
    if isinstance(value, (bool, str)) or value is None:
        return
    if isinstance(value, (int, float)):
        yield Secret(question, value)
    elif isinstance(value, (tuple, list, set, frozenset)):
        items = [tuple(item) if isinstance(item, list) else item for item in value]
        if len(items) > 1 and (all(type(item) is int for item in items) or all(map(_is_pair, items))):
            yield Secret(question, tuple(items))
        else:
            for item in items:
                yield from _plain(question, item)
    elif isinstance(value, dict):
        for item in value:
            yield from _plain(question, item)


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and all(type(number) is int for number in item)  # noqa: PLR2004
