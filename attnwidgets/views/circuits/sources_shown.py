"""What a SourcesView shows of a result: parts by name and text, words, and the parts that are unfolded."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from attnwidgets.circuits.sentences.part_scores import TITLES
from attnwidgets.circuits.sentences.sources import WEAK
from attnwidgets.circuits.sentences.written_without import written_without
from attnwidgets.tracing.text.display import joined
from attnwidgets.views.base.standalone_view import cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.circuits.sentences.sources import Sources
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.vision.picture_sources import PictureSources

    Float = NDArray[np.float64]

_UNFOLDED = 12  # parts that are all shown
_STRONGEST = 5  # of more parts, those that are shown with their neighbours
_LEAST = 0.1  # of the largest number, from which a part is shown
_LONGEST = 320  # characters of a part
_POSITIVE = 1e-9


class Part(NamedTuple):
    """A part of the text.

    Attributes:
        name: Its number; "" for the answer.
        role: Whose message it is, or its title.
        text: Its beginning.
        kind: "system", "question", "answer", or "".
    """

    name: str
    role: str
    text: str
    kind: str


class ShownSources:
    """A result of `aw.circuits.sources`, read for a view.

    Args:
        result: The result.

    Attributes:
        unit: The word for a part.
        title: What the numbers are.
        question: The beginning of the question that the view answers.
        removal: What happens to a part while the model writes the answer again.
        measure: The unit of the numbers: "nats", "logits" or "share".
        relation: The word between a number and its part: "without", or "from".
        places: Decimal places of a number.
        pictured: The trace whose picture is shown; None: the parts are of a text.
    """

    result: Sources | PictureSources
    removal = "hidden"
    measure = "nats"
    relation = "without"
    places = 2
    pictured: Trace | None = None

    def __init__(self, result: Sources) -> None:
        self.result = result
        self.trace: Trace | None = result.trace
        self.roles, self.spans = result.roles, result.spans
        self.unit = result.scores.unit
        self.title = TITLES[result.method].replace("part", self.unit)
        if result.method == "lrp":
            self.measure, self.relation = "logits", "from"
        self.question = f"Which {self.unit} does"
        self.sentences = tuple(str(text) for text in result.scores.targets)
        self.values: Float = np.atleast_2d(np.asarray(result.scores.values, dtype=np.float64))
        if self.measure != "nats":
            self.places = places_of(float(np.abs(self.values).max(initial=0)) or 1.0)

    @cached_property
    def parts(self) -> list[Part]:
        """The parts, in their order."""
        return [self._part(at, label) for at, label in enumerate(self.result.scores.labels)]

    def _part(self, at: int, label: str) -> Part:
        trace, kind, span = self.trace, self.roles[at], self.spans[at]
        if kind == "answer":
            return Part("", label, "", kind)
        of_message = self.unit == "message"
        head, _, text = label.partition(": ") if of_message else (str(at), "", label)
        name, _, role = head.partition(" ")
        if trace is not None:
            axis = trace.axes(trace.default_stack)[0]
            text = joined([axis.tokens[i] for i in span], axis.tokens).strip(" ↵")
            message = next((item for item in trace.messages if set(span) <= set(item.tokens)), None)
            if message is not None and len(span) == len(message.tokens):
                text = message.text
            if span[0] in self._titled:
                role, text = label, text.removeprefix(label).lstrip(" :.↵") or text
            elif not of_message:
                is_label = self.unit == "passage" or text.startswith(label.removesuffix("…"))
                role = label if not is_label else message.role if message is not None else ""
        return Part(name, role, cut(text, _LONGEST), kind)

    @cached_property
    def _titled(self) -> set[int]:
        """The first tokens of the parts that are passages with a title."""
        if self.trace is None or self.unit != "passage":
            return set()
        passages = self.trace.axes(self.trace.default_stack)[0].units["passage"]
        elements = zip(passages.spans, passages.titled or (), strict=False)
        return {span[0] for span, is_titled in elements if is_titled}

    @cached_property
    def words(self) -> list[list[tuple[str, Float]]]:
        """The words of each sentence, with their nats [part]; none where tokens were not measured."""
        result, trace = cast("Sources", self.result), self.trace
        if trace is None or result.by_token is None:
            return [[] for _ in self.sentences]
        unit = trace.axes(trace.default_stack)[0].units["word"]
        owner = {token: at for at, span in enumerate(unit.spans) for token in span}
        row = {token: at for at, token in enumerate(result.spans[-1])}
        sentences = []
        for span in result.sentences:
            members: dict[int, list[int]] = {}
            for token in span:
                members.setdefault(owner[token], []).append(row[token])
            sentences.append(
                [(unit.labels[word], result.by_token[rows].sum(0)) for word, rows in members.items()]
            )
        return sentences

    def opening(self) -> dict[str, Any]:
        """Return what the view opens on: a whole sentence."""
        return {"word": None, "views": [], "view": 0}

    def target(self, sentence: int, word: int | None) -> int | None:
        """Return the target of the result that a sentence is; None: a word, which is none."""
        return sentence if word is None else None

    def written_without(self, part: int | None) -> str:
        """Return the answer that the model writes without a part; None: with all of them."""
        return written_without(
            cast("Trace", self.trace), () if part is None else self.spans[part], self.spans[-1]
        )

    @property
    def removable(self) -> int:
        """The number of parts that can be taken away: all but the answer."""
        return len(self.roles) - 1

    @property
    def inside(self) -> list[int]:
        """The parts that do not stand apart."""
        return [at for at, role in enumerate(self.roles) if not role]

    def unfolded(self, sentence: int) -> list[int]:
        """Return the parts that are shown at first: the strongest with their neighbours, and those apart."""
        roles, values = self.roles, self.values[sentence]
        every = range(len(roles))
        if len(roles) - 1 <= _UNFOLDED:
            return list(every)
        largest = sorted(self.inside, key=lambda at: -abs(values[at]))[:_STRONGEST]
        limit = _LEAST * max((abs(values[at]) for at in largest), default=0)
        near = {at + step for at in largest if abs(values[at]) >= limit for step in (-1, 0, 1)}
        return [at for at in every if roles[at] or at in near]

    @property
    def least(self) -> float:
        """The least number of a part that a sentence rests on; of logits any that is positive."""
        return WEAK if self.measure == "nats" else _POSITIVE

    @property
    def limit(self) -> str:
        """The same in words."""
        return f"{0 if self.least == _POSITIVE else self.least:g} {self.measure}"

    def amount(self, value: float) -> str:
        """Return a number with its unit."""
        if self.measure == "share":
            return f"{value:.{self.places - 1}%}"
        return f"{value:+.{self.places}f} {self.measure}"

    def strongest(self, sentence: int) -> int | None:
        """Return the part on which a sentence rests most; None where no part matters much."""
        values = self.values[sentence]
        best = max(self.inside, key=lambda at: values[at], default=None)
        return None if best is None or not values[best] >= self.least > 0 else best

    def score(self, sentence: int, part: int, word: int | None = None) -> float:
        """Return the nats that a sentence, or one of its words, loses with a part hidden."""
        row = self.values[sentence] if word is None else self.words[sentence][word][1]
        return float(row[part])

    def named(self, part: int) -> str:
        """Return a part by its unit and number: "message 3"; the twin of `named` in sources.ts."""
        shown = self.parts[part]
        return f"{self.unit} {shown.name}" if shown.name else shown.role

    def rests(self, sentence: int) -> str:
        """Return in words on which part a sentence rests."""
        best = self.strongest(sentence)
        text = f"“{cut(self.sentences[sentence])}”"
        if not self.inside:
            return f"Before {text} no {self.unit} comes but those that stand apart."
        if best is None:
            return f"{text} rests on no {self.unit}: all are below {self.limit}."
        return f"{text} rests most on {self.named(best)}: {self.amount(self.values[sentence, best])}."

    @property
    def cover(self) -> str:
        """That losses are small where several parts say the same; "" of relevance, which hides nothing."""
        if self.measure != "nats":
            return ""
        return f"{self.unit.capitalize()}s that say the same cover for each other: each is then small alone."

    def described(self) -> dict[str, Any]:
        """Return the parts, and the sentences with their numbers: `ShownSources` of sources.ts."""
        answer = [
            {
                "text": text,
                "words": [word for word, _ in self.words[at]],
                "values": rounded(self.values[at]),
                "unfolded": self.unfolded(at),
                "strongest": self.strongest(at),
                "rests": self.rests(at),
            }
            for at, text in enumerate(self.sentences)
        ]
        every = [self.values, *(values for row in self.words for _, values in row)]
        # What is below the limit stays pale, also where nothing is above it.
        top = max(self.least, *(float(np.max(np.abs(values), initial=0)) for values in every))
        return {
            "unit": self.unit,
            "removal": self.removal,
            "measure": self.measure,
            "relation": self.relation,
            "places": self.places,
            "parts": [part._asdict() for part in self.parts],
            "answer": answer,
            "top": top,
            "least": self.least,
            "limit": self.limit,
            "cover": self.cover,
        }


def places_of(largest: float) -> int:
    """Return the decimal places that show two digits of the largest number, two or more."""
    return max(2, 1 - math.floor(math.log10(largest)))


def rounded(values: Float) -> list[float]:
    """Return numbers as JSON has them, to six digits."""
    return [float(f"{value:.6g}") for value in values]
