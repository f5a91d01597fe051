"""Rules of a key: for each question, a function that gives an answer a share from 0 to 1.

Every public function returns a `Rule`, whose `judge` marks the value of an answer, whose `code` is the call
that returns the rule again (for key files and other graders), and whose `steps` are the shares that it can
give (for graders that count tests).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import quoted
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.records import check_subject
from attnwidgets.course.values import canonical, checked, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

Test = str | Callable[[str], float | bool] | None
"""A regular expression that is searched in a text, a function of the text, or None: a person reads it."""

_MOST_STEPS = 40
_LEAST = 1e-9
"""Shares below this are rounding."""

_BASIS = 60
"""Characters of the answer that are shown for a criterion."""

_TENTHS = tuple(round(step / 10, 1) for step in range(1, 11))


def somers_d(right: Sequence[int], answered: Sequence[int]) -> float:
    """Return Somers' D of two lists of ranks, -1 to 1: agreement over the pairs that `right` does not tie.

    It is Kendall's tau where neither has ties; `scipy.stats.somersd` returns the same.
    """
    agreeing = untied = 0
    for (a, b), (c, d) in combinations(zip(right, answered, strict=True), 2):
        agreeing += ((a > c) - (a < c)) * ((b > d) - (b < d))
        untied += a != c
    return agreeing / untied if untied else 0.0


class Criterion(NamedTuple):
    """The proposal of a rubric for a criterion."""

    name: str
    weight: float
    """Its part of the question, from 0 to 1."""
    share: float | None
    """From 0 to 1; None: a person must read the answer."""
    basis: str
    """The words of the answer that the share rests on, or why a person must read it."""

    def __str__(self) -> str:
        if self.share is None:
            return f"{self.name}: {self.basis}"
        return f"{self.name}: {self.share:g}{f' for {self.basis}' if self.basis else ''}"


class Verdict(NamedTuple):
    """A share from 0 to 1, a reason or "", and the criteria of a rubric."""

    share: float
    reason: str = ""
    criteria: tuple[Criterion, ...] = ()


@dataclass(frozen=True)
class Rule:
    """The rule of a question; made by `exact`, `any_of`, `overlap`, `kendall`, `near` and `rubric`.

    Attributes:
        name: The function that returned it.
        arguments: The arguments of the call, as code, without points and subject.
        points: Points for a share of 1.
        subject: The hash of the model and text that an answer must be about; None: any.
        judge: The share of a value of a kind, with a reason; it raises AnswerError where the value is
            of a kind that cannot be right.
        unit: The unit in which the answer must be given; None: any.
    """

    name: str
    arguments: tuple[str, ...]
    points: float
    subject: str | None
    judge: Callable[[str, Any], Verdict]
    unit: str | None = None

    steps: tuple[float, ...] = _TENTHS
    """Shares that it can give, ascending, if they are few; else tenths."""
    margin: float | None = None
    """Distance of the runner-up from the right answer, if it was computed (`key_of`)."""
    runner_up: Any = None
    """The best answer that is not right, if it was computed."""

    def __repr__(self) -> str:
        more = () if self.subject is None else (f"subject={self.subject!r}",)
        return f"{self.name}({', '.join((*self.arguments, f'points={self.points:g}', *more))})"

    @property
    def code(self) -> str:
        """The call that returns an equal rule.

        Raises:
            AnswerError: It contains a function.
        """
        if " at 0x" in repr(self):
            raise AnswerError("the rule contains a function, which no file can: use regular expressions")
        return repr(self)


def exact(value: Any, *, points: float = 1, subject: str | None = None) -> Rule:
    """Return the rule of a single right answer: share 1 for it, 0 for others.

    Args:
        value: The right answer, in any form that the question takes: `(5, 9)`, `{3, 4}`, `"ALTI"`. Numbers
            are compared in six significant digits; sets in any order.
        points: Points for the right answer, above 0.
        subject: The hash of the model and text that the answer must be about (`record["subject"]` of your
            answer); None: not compared.

    Returns:
        A rule, for a key.

    Raises:
        AnswerError: An argument is not valid.

    Example:
        >>> aw.course.exact((5, 9), points=2)
        exact((5, 9), points=2)
    """
    return _among("exact", [(value, 1.0)], points, subject)


def any_of(*values: Any, points: float = 1, subject: str | None = None) -> Rule:
    """Return the rule that each of several answers is right, or right in part.

    Args:
        values: The right answers; or a dict from an answer to its share, from 0 to 1.
        points: Points for a share of 1, above 0.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        A rule, for a key.

    Raises:
        AnswerError: An argument is not valid.

    Example:
        >>> aw.course.any_of({(0, 3): 1, (0, 0): 0.5})
        any_of({(0, 3): 1.0, (0, 0): 0.5}, points=1)
    """
    if len(values) == 1 and isinstance(values[0], Mapping):
        pairs = [(value, _share(share)) for value, share in values[0].items()]
    else:
        pairs = [(value, 1.0) for value in values]
    if not pairs:
        raise AnswerError("any_of takes the right answers: give one at least")
    return _among("any_of", pairs, points, subject)


def _among(name: str, pairs: list[tuple[Any, float]], points: float, subject: str | None) -> Rule:
    right_answers = [(_plain_list(value), share) for value, share in pairs]

    def judge(kind: str, value: Any) -> Verdict:
        return Verdict(
            max((share for right, share in right_answers if _same(kind, right, value)), default=0.0)
        )

    shares = [share for _, share in right_answers]
    if set(shares) == {1.0}:
        code = tuple(repr(_hashable(item)) for item, _ in right_answers)
    else:
        code = (repr({_hashable(item): share for item, share in right_answers}),)
    return _rule(name, code, points, subject, judge, steps=tuple(sorted(set(shares) - {0.0})))


def overlap(
    values: Iterable[Any],
    *,
    candidates: int | None = None,
    points: float = 1,
    subject: str | None = None,
) -> Rule:
    """Return the rule of a set: the part of it that is in the answer, less the part of the wrong candidates.

    The share is max(0, hits / n - others / m). n is the size of the right set, and m the number of wrong
    candidates (Youden's J): an answer of all candidates, or of none, has a share of 0. Without `candidates`,
    m = n: a wrong element costs as much as a right element gives. Of spans, the sets are the elements from
    start to stop.

    Args:
        values: The right set: positions, heads, layers or names; or a span `(start, stop)`.
        candidates: Number of all candidates, right and wrong. Give it where more than half of them are right:
            else an answer of all candidates has a share above 0.
        points: Points for the same set, above 0.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        A rule, for a key. An empty answer is right where the right set is empty.

    Raises:
        AnswerError: An argument is not valid.

    Example:
        >>> rule = aw.course.overlap({5, 6, 11})
        >>> round(rule.judge("tokens", [5, 6, 7]).share, 3)
        0.333
        >>> round(aw.course.overlap({5, 6, 11}, candidates=12).judge("tokens", [5, 6, 7]).share, 3)
        0.556
    """
    right_set = _plain_list(values)
    if not isinstance(right_set, list):
        raise AnswerError(f"overlap takes a set of answers, not {quoted(str(values))}")
    if candidates is not None and candidates <= len(right_set):
        raise AnswerError(f"candidates={candidates} are not more than the {len(right_set)} that are right")

    def judge(kind: str, value: Any) -> Verdict:
        if kind not in ("tokens", "span", "head", "layer", "choice"):
            raise AnswerError(f"a set is right here, and {quoted(kind)} is not a set")
        right, chosen = _elements(kind, right_set), _elements(kind, value)
        if not right:
            return Verdict(float(not chosen))
        others = len(right) if candidates is None else max(1, candidates - len(right))
        return Verdict(max(0.0, len(right & chosen) / len(right) - len(chosen - right) / others))

    sizes = {len(right_set)}
    if len(right_set) == 2 and all(isinstance(edge, int) for edge in right_set):  # noqa: PLR2004 - it may be a span
        sizes.add(abs(right_set[1] - right_set[0]))
    steps = {
        round(hits / size - others / wrong, 9)
        for size in sizes
        for wrong in [size if candidates is None else max(1, candidates - size)]
        for hits in range(1, size + 1)
        for others in range(wrong + 1)
        if hits / size - others / wrong > _LEAST
    }
    code = (repr(right_set), *(() if candidates is None else (f"candidates={candidates}",)))
    return _rule("overlap", code, points, subject, judge, steps=_few(steps or {1.0}))


def kendall(order: Iterable[Any], *, points: float = 1, subject: str | None = None) -> Rule:
    """Return the rule of how far two orders agree: Kendall's tau, and 0 where it is negative.

    Args:
        order: The right order, the first rank first; a list in it holds ties.
        points: Points for the same order, above 0.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        A rule, for a key. It counts pairs: those in the same order, less those in the opposite order, divided
        by the number of pairs that the right order does not tie (Kendall's tau; with ties, Somers' D). One
        exchange of neighbours among four items gives 4/6. Items that tie in the right order may be given in
        any order. A pair that only the answer ties counts 0, the mean of guessing it. An answer with other
        items has a share of 0.

    Raises:
        AnswerError: The order holds fewer than two ranks.

    Example:
        >>> rule = aw.course.kendall(["same", "all", "different"])
        >>> round(rule.judge("order", ["all", "same", "different"]).share, 3)
        0.333
    """
    right_order = checked("order", list(order))
    if len(right_order) < 2:  # noqa: PLR2004
        raise AnswerError("kendall takes an order of two places or more")
    right = _ranks(right_order)

    def judge(kind: str, value: Any) -> Verdict:
        if kind != "order":
            raise AnswerError(f"an order is right here, and {quoted(kind)} is not an order")
        ranks = _ranks(value)
        if set(ranks) != set(right):
            odd = sorted(set(ranks) ^ set(right))
            return Verdict(0.0, f"other items were to be put in order: {', '.join(odd)}")
        names = list(right)
        return Verdict(max(0.0, somers_d([right[name] for name in names], [ranks[name] for name in names])))

    pairs = sum(first != second for first, second in combinations(right.values(), 2))
    steps = _few({pair / pairs for pair in range(1, pairs + 1)})
    return _rule("kendall", (repr(right_order),), points, subject, judge, steps=steps)


def near(
    value: float,
    full: float,
    none: float,
    *,
    unit: str | None = None,
    points: float = 1,
    subject: str | None = None,
) -> Rule:
    """Return the rule of a number: share 1 within `full` of the right one, 0 beyond `none`, linear between.

    Args:
        value: The right number.
        full: The distance up to which the share is 1, in the number's unit; 0 or more.
        none: The distance from which it is 0, above `full`.
        unit: The unit in which the number must be given; None: not compared.
        points: Points for a share of 1, above 0.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        A rule, for a key.

    Raises:
        AnswerError: An argument is not valid.

    Example:
        >>> rule = aw.course.near(0.847, full=0.005, none=0.05)
        >>> rule.judge("number", 0.85).share
        1.0
    """
    right, inner, outer = (checked("number", number) for number in (value, full, none))
    if not 0 <= inner < outer:
        raise AnswerError(
            f"near(full={full}, none={none}): none must be larger than full, and full 0 or more"
        )

    def judge(kind: str, given: Any) -> Verdict:
        if kind != "number":
            raise AnswerError(f"a number is right here, and {quoted(kind)} is not a number")
        distance = abs(given - right)
        return Verdict(min(1.0, max(0.0, (outer - distance) / (outer - inner))))

    code = (f"{right!r}", f"full={inner!r}", f"none={outer!r}", *((f"unit={unit!r}",) if unit else ()))
    return _rule("near", code, points, subject, judge, unit=unit)


def rubric(
    criteria: Mapping[str, Test | tuple[float, Test]], *, points: float = 1, subject: str | None = None
) -> Rule:
    """Return the rule of several criteria, each of which counts by its weight, for texts.

    It proposes a mark, with the words that each criterion rests on; a person confirms it
    (`ClassGrades.confirm`, or `marks` of `grade`). An empty answer has a share of 0.

    Args:
        criteria: By the name of a criterion: a regular expression that is searched in the answer (upper and
            lower case alike), a function of the answer that returns a truth value or a share, or None where a
            person must read it. A pair `(weight, test)` gives it a weight other than 1.
        points: Points for all criteria, above 0.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        A rule, for a key. Its marks are proposed. A criterion that a person must read, or whose function
        fails for an answer, is named in the reason, and the mark can only be confirmed with its points.

    Raises:
        AnswerError: An argument is not valid.

    Example:
        >>> rule = aw.course.rubric({"names the feature": r"plural", "gives a reason": None})
        >>> rule.judge("text", "It fires on plural nouns.").reason
        "names the feature: 1 for 'plural'; gives a reason: to be read"
    """
    if not isinstance(criteria, Mapping):
        raise AnswerError('rubric takes its criteria by name: rubric({"names the feature": r"plural"})')
    weighed = {name: test if isinstance(test, tuple) else (1.0, test) for name, test in criteria.items()}
    total = sum(weight for weight, _ in weighed.values())
    if not weighed or not total > 0 or any(weight < 0 for weight, _ in weighed.values()):
        raise AnswerError("rubric takes criteria with weights of 0 or more, one of them above 0")
    for name, (_, test) in weighed.items():
        _compiled(name, test)

    def judge(_: str, value: Any) -> Verdict:
        text = value if isinstance(value, str) else canonical(value)
        if not text.strip():
            return Verdict(0.0, "the answer is empty")
        read = tuple(
            Criterion(name, weight / total, *_tested(test, text)) for name, (weight, test) in weighed.items()
        )
        share = sum(criterion.weight * (criterion.share or 0) for criterion in read)
        return Verdict(min(1.0, share), "; ".join(map(str, read)), read)

    return _rule("rubric", (repr(dict(criteria)),), points, subject, judge)


def _tested(test: Test, text: str) -> tuple[float | None, str]:
    """Return the share of a criterion, and its basis."""
    if test is None:
        return None, "to be read"
    if isinstance(test, str):
        match = re.search(test, text, re.IGNORECASE)
        return (1.0, _whole_words(text, *match.span())) if match else (0.0, "")
    try:
        return _share(float(test(text))), ""
    except Exception as error:  # noqa: BLE001 - a teacher's function must not end the grading
        return None, f"to be marked by hand ({type(error).__name__}: {error})"


def _whole_words(text: str, start: int, stop: int) -> str:
    while start and text[start - 1].isalnum():
        start -= 1
    while stop < len(text) and text[stop].isalnum():
        stop += 1
    return quoted(" ".join(text[start:stop].split()), _BASIS) if stop > start else ""


def _compiled(name: str, test: Test) -> None:
    if isinstance(test, str):
        try:
            re.compile(test)
        except re.error as error:
            raise AnswerError(f"criterion {quoted(name)} is not a regular expression: {error}") from error
    elif test is not None and not callable(test):
        raise AnswerError(f"criterion {quoted(name)} is neither a regular expression, a function, nor None")


def _rule(
    name: str,
    arguments: tuple[str, ...],
    points: float,
    subject: str | None,
    judge: Callable[[str, Any], Verdict],
    *,
    unit: str | None = None,
    steps: tuple[float, ...] = _TENTHS,
) -> Rule:
    worth = checked("number", points)
    if worth <= 0:
        raise AnswerError(f"points={points} is not above 0")
    return Rule(name, arguments, float(worth), check_subject(subject), judge, unit, steps)


def _plain_list(value: Any) -> Any:
    """Return a value as canonical JSON has it, sets and ranges as sorted lists."""
    if isinstance(value, (set, frozenset, range)):
        value = sorted(value, key=str)
    return plain(value)


def _few(shares: set[float]) -> tuple[float, ...]:
    """Return all shares that a rule can give, if they are few; else tenths."""
    return tuple(sorted(shares)) if 0 < len(shares) <= _MOST_STEPS else _TENTHS


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _share(share: float) -> float:
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise AnswerError(f"a share of {share!r} is not a number from 0 to 1")
    return float(share)


def _same(kind: str, right: Any, value: Any) -> bool:
    """Return whether a value equals the right one, both in the stored form of their kind."""
    return canonical(checked(kind, right)) == canonical(value)


def _elements(kind: str, value: Any) -> set[str]:
    elements = checked(kind, value)
    if kind == "span":
        return set(map(str, range(*elements)))
    if not isinstance(elements, list) or (kind == "head" and elements and not isinstance(elements[0], list)):
        elements = [elements]
    return {canonical(element) for element in elements}


def _ranks(order: list[Any]) -> dict[str, int]:
    """Return the rank of every item, from 0; ties have the same rank."""
    return {
        str(name): number
        for number, rank in enumerate(order)
        for name in (rank if isinstance(rank, list) else [rank])
    }


RULES: dict[str, Callable[..., Rule]] = {
    rule.__name__: rule for rule in (exact, any_of, overlap, kendall, near, rubric)
}
"""The rules, by name."""
