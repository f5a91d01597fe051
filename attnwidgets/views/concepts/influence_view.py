"""The view of influence: the training texts that helped and that harmed a model's answer to a test.

The numbers of a test are answers to requests: its lists and points, the coloured words of the listed texts,
each of which runs the model, and refits without a training text. Coloured words stay in `_coloured`, so that
figures and pages have the words that were computed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._selecting import position
from attnwidgets._tables import rows_of
from attnwidgets.concepts.influence_result import Influence
from attnwidgets.views.base.accepts import Entry, entries_of
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.standalone_view import LONGEST, TextsView, cut, number, numbers, said
from attnwidgets.views.concepts.coloured_texts import WHOLE, coloured
from attnwidgets.views.concepts.concept_view import table_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from attnwidgets.explanations.registry.registry import Method
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import TitleOptions
    from attnwidgets.views.wire.handlers import Answer

MOST = 8
"""Training texts of each kind that are listed."""
_POINTS = 400  # of the scatter
_TESTS = 24  # whose numbers a page holds
_QUICK = 200_000  # numbers of the features, up to which a page holds refits


class InfluenceView(TextsView):
    """The training texts that help a test most, and those that harm it, among all others.

    A menu chooses the test, which is shown with its label and its loss. Below it stand the helpful and the
    harmful training texts, each with its label, a bar of its influence, and the text; next to them every
    training text as a point, its influence against its distance from the test (or its loss), filled where it
    has the test's label. A click chooses a training text, in a list or among the points. "Leave it out and
    refit" fits the head again without it and shows the test's measure before and after, next to the estimate;
    this needs a running kernel, except for texts that a page holds. A text opens with a click.

    The words of these texts are coloured by their values for and against the text's label (of a model without
    classes, for its prediction), each text on a separate scale; a word says its number under the pointer and
    by the arrow keys. A menu chooses the method. This runs the model on the test and the texts
    listed for it, about 2 seconds for 17 sentences of MiniLM by "lrp", with progress; until then, and in a
    page for other tests and methods than it opens with, texts are plain. Of a longer text than 2,000
    characters the beginning is shown.

    Args:
        shown: Result of `aw.concepts.influence`.
        test: Number of the test that is shown at first.
        method: Name of the method whose attributions colour the words at first (`aw.methods()`); None: they
            are plain.
        linked: A view of a trace of the same model, such as `aw.Explorer(trace)`: a text that is opened is
            shown in it, and in the views that are linked with it. None: opening a text copies the line of
            Python that does.

    Raises:
        TypeError: `shown` is not an influence, or `linked` is not a view of a trace.
        ValueError: The method is unknown, or returns no attributions to a class. (Where a method cannot
            explain the model, the view says why.)
        IndexError: The index of the test is out of range.
    """

    _VIEW = "InfluenceView"
    NEEDS = Needs(("concepts",))

    def __init__(
        self,
        shown: Any,
        *,
        test: int = 0,
        method: str | None = "lrp",
        linked: Any = None,
        **options: Unpack[TitleOptions],
    ) -> None:
        if not isinstance(shown, Influence):
            raise TypeError(
                f"InfluenceView() shows the result of aw.concepts.influence, not {type(shown).__name__}."
            )
        self._influence = shown
        self._sample = shown._sample  # noqa: SLF001 - a part of its class
        self._colouring = _colouring(self._sample)
        named = "" if method is None else _named(method)
        self._method = named if self._colouring else ""
        self._coloured: dict[tuple[int, str], dict[str, Any]] = {}  # coloured words by test and method
        self._test = position(test, range(len(shown.tests)), "test")
        super().__init__(linked, **options)

    def _own_options(self) -> dict[str, Any]:
        return {
            **super()._own_options(),
            "test": self._test,
            "colouredBy": self._method,
            "tableOf": ["test"],
        }

    def influence(self, train: int, test: int | None = None) -> float:
        """Return an influence that the view shows; positive is harmful.

        Args:
            train: Number of the training text.
            test: Number of the test; None: the shown test.

        Raises:
            IndexError: The index of the text is out of range.
        """
        row, column = self._at(self.options["test"] if test is None else test, train)
        return float(self._influence.values[row, column])

    def _at(self, test: int, train: int) -> tuple[int, int]:
        shown = self._influence
        return (
            position(int(test), range(len(shown.tests)), "test"),
            position(int(train), range(len(shown.train)), "training text"),
        )

    def _handlers(self) -> Mapping[str, Handler]:
        refits = {"refit": Handler(self._refit, runs_model=True, for_page=self._quick)}
        strips = {"strips": Handler(self._strips, runs_model=True, for_page=self._opening)}
        return {
            **super()._handlers(),
            "csv": Handler(self._table_of, for_page=self._first, prefetched=tuple),
            "tests": Handler(self._tests),
            "influence": Handler(self._data, for_page=self._shown_tests, prefetched=self._first),
            **(strips if self._colouring else {}),
            **({} if self._influence.measured is None else refits),
        }

    def _tests(self) -> Answer:
        """Answer with the tests and their common fields (`Taught` of concepts/influence.ts)."""
        shown = self._influence
        measured = shown.measured
        meta = {
            "tests": [cut(text) for text in shown.tests],
            "labels": [cut(label) for label in shown.test_labels],
            "measured": None if measured is None else numbers(self._turned(measured)),
            "measure": self._measure,
            "of": shown.of,
            "train": len(shown.train),
            "agreement": number(shown.agreement),
            "model": cut(shown.model),
            "notes": said(shown.notes),
            "methods": [each.describe(each.name) for each in self._colouring],
            "classes": self._explains_labels,
        }
        return meta, []

    @property
    def _measure(self) -> str:
        """Name of the measure that training texts influence."""
        refit = self._influence._refit  # noqa: SLF001 - a part of its class
        is_output = refit is not None and refit.kind == "regression" and self._influence.measure == "margin"
        return "output" if is_output else self._influence.measure

    @property
    def _explains_labels(self) -> bool:
        """Whether labels are classes, which words speak for; if not, they speak for the prediction."""
        from attnwidgets.explanations.targets.resolve import class_names

        return self._sample is not None and self._influence.test_labels[0] in class_names(self._sample)

    def _turned(self, values: Any) -> Any:
        """Return a measure, or its change, as a reader has it: a margin falls where it is harmed."""
        return -values if self._measure == "margin" else values

    def _opening(self) -> Iterator[dict[str, Any]]:
        """Yield the test and the method of the words that a page holds."""
        if self.options["colouredBy"]:
            yield {"test": self.options["test"], "method": self.options["colouredBy"]}

    def _first(self) -> Iterator[dict[str, Any]]:
        yield {"test": self.options["test"]}

    def _shown_tests(self) -> Iterator[dict[str, Any]]:
        """Yield the tests whose numbers a page holds, the shown test first."""
        first = self.options["test"]
        others = [test for test in range(len(self._influence.tests)) if test != first]
        for test in [first, *others[: _TESTS - 1]]:
            yield {"test": test}

    def _points(self, row: NDArray[np.float64]) -> list[int]:
        """Return the training texts that are drawn: the most influential, and others evenly spaced."""
        if len(row) <= _POINTS:
            return list(range(len(row)))
        strong = np.argsort(-np.abs(row), kind="stable")[: _POINTS // 2]
        even = np.linspace(0, len(row) - 1, _POINTS // 2).astype(int)
        return sorted({*map(int, strong), *map(int, even)})

    def _data(self, test: int) -> Answer:
        """Answer with the training texts of a test (`Influential` of concepts/influence.ts)."""
        shown = self._influence
        at, _ = self._at(test, 0)
        row = shown.values[at]
        finite = np.where(np.isfinite(row), row, 0.0)
        lists = self._listed(at)
        points = sorted({*self._points(finite), *lists["helpful"], *lists["harmful"]})
        whole = {*lists["helpful"], *lists["harmful"]}
        meta = {
            **lists,
            "test": cut(shown.tests[at], WHOLE),
            "points": points,
            "texts": [cut(shown.train[point], WHOLE if point in whole else LONGEST) for point in points],
            "labels": [cut(shown.train_labels[point]) for point in points],
            "influence": numbers(row[points]),
            "change": None if shown.change is None else numbers(self._turned(shown.change[at, points])),
            "distance": None if shown.distance is None else numbers(shown.distance[at, points]),
            "losses": numbers(shown.losses[points]),
        }
        return meta, []

    def _listed(self, test: int) -> dict[str, list[int]]:
        """Return the numbers of the training texts that are listed, helpful and harmful."""
        row = self._influence.values[test]
        finite = np.where(np.isfinite(row), row, 0.0)
        return {
            word: [int(at) for at in np.argsort(sign * finite, kind="stable")[:MOST] if sign * finite[at] < 0]
            for word, sign in (("helpful", 1), ("harmful", -1))
        }

    def _strips(self, test: int, method: str) -> Answer:
        """Answer with the coloured words of a test and of the texts listed for it (`Coloured`)."""
        shown = self._influence
        at, _ = self._at(test, 0)
        if (words := self._coloured.get((at, method))) is not None:
            return words, []
        listed_texts = sorted(
            {item for numbers_of_side in self._listed(at).values() for item in numbers_of_side}
        )
        texts = [(shown.tests[at], shown.test_labels[at])]
        texts += [(shown.train[listed_text], shown.train_labels[listed_text]) for listed_text in listed_texts]
        parts = [
            coloured(self._sample, text, _named(method), label)
            for text, label in progress(texts, "colouring texts")
        ]
        result = {"test": parts[0], "train": dict(zip(map(str, listed_texts), parts[1:], strict=True))}
        self._coloured[at, method] = result
        return result, []

    def _quick(self) -> Iterator[dict[str, Any]]:
        """Yield the refits that a page holds: the listed texts of the shown test, if a fit is quick."""
        refit = self._influence._refit  # noqa: SLF001 - a part of its class
        if refit is None or refit.features.size > _QUICK:
            return
        test = self.options["test"]
        for train in (item for listed_texts in self._listed(test).values() for item in listed_texts):
            yield {"test": test, "train": train}

    def _refit(self, test: int, train: int) -> Answer:
        """Answer with the measure of a test before and after a training text is left out."""
        row, column = self._at(test, train)
        measured = self._influence.measured
        if measured is None:
            raise LookupError("influence by gradients fits no head; use of='head'.")
        before = float(self._turned(measured[row]))
        change = float(self._turned(self._influence.leave_one_out([column])[row, 0]))
        return {"before": number(before), "after": number(before + change), "change": number(change)}, []

    def _text(self, at: int) -> str:
        """Return a training text; tests are counted from -1 downwards."""
        shown = self._influence
        if at < 0:
            return shown.tests[position(-1 - at, range(len(shown.tests)), "test")]
        return shown.train[position(at, range(len(shown.train)), "text")]

    def _numbers(self) -> Kinds:
        return {"influence": self._influence_paths, "left_out": self._left_out_paths}

    def _influence_paths(self, test: int, train: int) -> Iterator[Path]:
        """Yield the paths to an influence."""
        row, column = self._at(test, train)
        yield self._influence, f".values[{row}, {column}].item()"
        yield self, f".influence({listed(column, test=row)})"

    def _left_out_paths(self, test: int, train: int) -> Iterator[Path]:
        """Yield the paths to the change of a measure without a training text."""
        row, column = self._at(test, train)
        yield self._influence, f".leave_one_out([{column}])[{row}, 0].item()"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        test = self.options["test"]
        for train in self._data(test)[0]["points"]:
            yield {"of": "influence", "test": test, "train": train}

    def describe(self) -> str:
        """Return the most helpful and harmful texts of the shown test in words."""
        return self._influence._text_of(self.options["test"])  # noqa: SLF001 - a part of its class

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.concepts.figures import influence_sheet
        from attnwidgets.views.still.texts import coloured_sheet

        test, method = self.options["test"], self.options["colouredBy"]
        words = self._coloured.get((test, method))
        if words is None:
            sheet = influence_sheet(self._influence, test, k=MOST)
        else:
            speaks = "the text's label" if self._explains_labels else "the prediction"
            note = f"words by {method}: orange for {speaks}, violet against it"
            sheet = coloured_sheet(self._influence, test, words, note, theme)
        return replace(sheet, title=str(self.options["title"]) or sheet.title)

    def _table_of(self, test: int) -> Answer:
        """Answer with the table of a test: a page with those of all tests would weigh megabytes."""
        at, _ = self._at(test, 0)
        part = self._influence._of_test(at)  # noqa: SLF001 - a part of its class
        return table_of([dict(zip(part, row, strict=True)) for row in rows_of(part)]), []

    def __repr__(self) -> str:
        return f"{self._VIEW}({self.describe()})"


def _colours(method: Method) -> bool:
    return method.kind == "attributions" and "target" in method.options


def _named(method: str) -> str:
    """Return the name of a method that can colour words by their values for a label.

    Raises:
        ValueError: The method is unknown, or cannot explain the text.
    """
    from attnwidgets.explanations.registry.registry import methods

    if not _colours(methods()[method]):
        raise ValueError(f"method={method!r} returns no attributions to a class, which colour a text.")
    return method


def _colouring(sample: Trace | None) -> list[Entry]:
    """Return the methods that may colour the words of texts; none without a model to run."""
    from attnwidgets.explanations.registry.registry import methods

    if sample is None:
        return []
    return entries_of(sample, [each.name for each in methods() if _colours(each)], ())
