"""The view of sources: an answer, and the messages, or the parts of a picture, that it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._tables import csv_of
from attnwidgets.circuits.sentences.sources import Sources
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.standalone_view import StandaloneView
from attnwidgets.views.circuits.picture_shown import ShownPicture
from attnwidgets.views.circuits.sources_shown import ShownSources, rounded
from attnwidgets.views.wire.handlers import Handler
from attnwidgets.vision.picture_sources import PictureSources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.options import TitleOptions
    from attnwidgets.views.wire.handlers import Answer

_OF_PICTURE = 600  # px of height


class SourcesView(StandaloneView):
    """The messages that each sentence of an answer rests on, or the parts of a picture that each word does.

    Messages are cards in their order. A sentence of the answer is chosen by a click, or by the left and right
    keys; a switch goes on to its words. Cards are coloured by the nats that it loses with their message
    hidden or removed, on one scale for all sentences. The question, a system message and the answer's own
    earlier words stand apart. Of more than 12 messages, the strongest five are shown with their neighbours;
    rows between them unfold the others.

    Of a picture, each word that rests on a part has a small copy of it, all on one scale; words that rest on
    none have no copy. Numbers are in the unit of the result: nats, logits or shares. Where a model reads the
    whole picture and its tiles, several tokens lie on a pixel: a switch chooses one of these views, in which
    each token is drawn in its own box, and the text says how much each view has.

    A card or a part is chosen by a click, or by the up and down keys. **Without it**, or Enter, lets the
    model write the answer again with the message hidden, or the part painted over: greedy, up to 16 tokens
    more than the answer has. A page without a kernel holds the numbers of all sentences and words, and the
    answers that were written.

    Args:
        shown: Result of `aw.circuits.sources` or of `aw.vision.sources`.
        sentence: Number of the sentence that is shown at first.

    Raises:
        TypeError: `shown` is something else.
        IndexError: The answer has no such sentence.
    """

    _VIEW = "SourcesView"
    _HEIGHT = 540
    NEEDS = Needs(("sources",), media=True)

    def __init__(self, shown: Any, *, sentence: int = 0, **options: Unpack[TitleOptions]) -> None:
        if not isinstance(shown, (Sources, PictureSources)):
            raise TypeError(
                "SourcesView() shows the result of aw.circuits.sources or aw.vision.sources, not "
                f"{type(shown).__name__}."
            )
        self.shown: ShownSources = ShownSources(shown) if isinstance(shown, Sources) else ShownPicture(shown)
        count = len(self.shown.sentences)
        if not -count <= sentence < count:
            raise IndexError(f"sentence={sentence} is out of range: the answer has {count} sentences.")
        self._sentence = sentence % count
        # The answers written without each part; None: with all.
        self._written: dict[int | None, str] = {}
        if self.shown.pictured is not None:
            options.setdefault("height", _OF_PICTURE)
        super().__init__(**options)

    def _join(self, start: Mapping[str, Any]) -> Link:
        link = super()._join(start)
        if self.shown.pictured is not None:
            link.store.show_media(self.shown.pictured)
        return link

    def _own_options(self) -> dict[str, Any]:
        trace = self.shown.trace
        writes = trace is not None and trace.model is not None
        words = {"asks": self.shown.question, "measures": self.shown.title}
        start = {"sentence": self._sentence, "part": None, "isPicture": self.shown.pictured is not None}
        return words | start | self.shown.opening() | {"writes": writes, "written": []}

    def score(self, sentence: int, part: int, *, word: int | None = None) -> float:
        """Return the number of a part for a sentence of the answer, or one of its words.

        It is in nats that the sentence loses without the part; by "lrp" in logits, and of a picture in the
        result's `unit`.

        Args:
            sentence: Number of the sentence; of a picture's answer 0, which is all of it.
            part: Number of the part.
            word: Number of the word in the sentence; None: the whole sentence.

        Raises:
            IndexError: The answer has no such sentence, word or part.
        """
        return self.shown.score(sentence, part, word)

    def written_without(self, part: int | None) -> str:
        """Return the answer that the model writes without a part, which pages then hold.

        Args:
            part: Number of the part; None: nothing is taken away.

        Raises:
            IndexError: The text has no such part, or it is the answer itself.
            ValueError: The result holds no model.
            UnsupportedModelError: The model does not generate, or mixes tokens without attention.
        """
        trace, count = self.shown.trace, self.shown.removable
        if trace is None or trace.model is None:
            raise ValueError("the answer cannot be written again: the result holds no model.")
        if part is not None and not 0 <= part < count:
            raise IndexError(f"part {part} is out of range: parts 0 to {count - 1} can be taken away.")
        if part not in self._written:
            self._written[part] = self.shown.written_without(part)
            self.add_options(written=list(self.written()))
        return self._written[part]

    def written(self) -> dict[int, str]:
        """Return the answers that were written, by the part without which."""
        return {part: text for part, text in self._written.items() if part is not None}

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            **super()._handlers(),
            "sources": Handler(self._data),
            # A picture opens on a word.
            "words": Handler(
                self._answer_words,
                for_page=self._with_words,
                prefetched=tuple if self.shown.pictured is None else self._with_words,
            ),
            "written_without": Handler(
                self._answer_written, runs_model=True, for_page=self._recorded, prefetched=self._recorded
            ),
        }

    def _data(self) -> Answer:
        """Answer with the parts, the answer and its numbers: `ShownSources` of sources.ts."""
        return self.shown.described(), []

    def _answer_words(self, sentence: int) -> Answer:
        """Answer with the numbers of the words of a sentence [word][part]."""
        return [rounded(values) for _, values in self.shown.words[int(sentence)]], []

    def _with_words(self) -> Iterator[dict[str, Any]]:
        yield from ({"sentence": at} for at, words in enumerate(self.shown.words) if words)

    def _answer_written(self, part: int) -> Answer:
        """Answer with the text that the model writes without a part, and with all of them."""
        text = self.written_without(int(part))
        return {"text": text, "plain": self.written_without(None)}, []

    def _recorded(self) -> Iterator[dict[str, Any]]:
        yield from ({"part": part} for part in self.written())

    def _numbers(self) -> Kinds:
        return {"source": self._paths}

    def _paths(self, sentence: int, part: int, word: int | None = None) -> Iterator[Path]:
        """Yield the paths to the nats of a sentence, or of its word, without a part."""
        sentence, part, word = int(sentence), int(part), None if word is None else int(word)
        if (target := self.shown.target(sentence, word)) is not None:
            yield self.shown.result, f".scores.value({part}, target={target})"
        yield self, f".score({listed(sentence, part, word=word)})"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        for sentence in range(len(self.shown.sentences)):
            for part in self.shown.unfolded(sentence):
                yield {"of": "source", "sentence": sentence, "part": part, "word": None}

    def describe(self) -> str:
        """Return on which part each sentence, or each word of a picture's answer, rests most, in numbers."""
        shown = self.shown
        lines = [*(shown.rests(at) for at in range(len(shown.sentences))), shown.cover]
        return " ".join(filter(None, lines))

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.sources import sources_sheet

        return sources_sheet(self, theme)

    def _table(self) -> str:
        rows = self.shown.result.to_rows()
        return csv_of([*rows[:1], *(row.values() for row in rows)])

    def __repr__(self) -> str:
        return f"{self._VIEW}({self.shown.result!r})"
