"""The values of answers in a teacher's code and in a key; the code is read, and not run."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets.course.grading.rules import RULES, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MAGIC = re.compile(r"^\s*[%!?].*$", re.MULTILINE)


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
            value = _literal(node, constants)
        except (ValueError, TypeError):
            computed[question] = None
            continue
        seen.add(question)
        secrets.extend(_plain(question, value))
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
