"""What a SourcesView shows of a picture: its parts as boxes, in one view of the picture or several."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.circuits.sentences.written_without import written_without
from attnwidgets.tracing.text.display import joined
from attnwidgets.views.base.standalone_view import cut
from attnwidgets.views.circuits.sources_shown import Part, ShownSources, places_of, rounded
from attnwidgets.vision.picture_answer import picture_tokens
from attnwidgets.vision.picture_removal import painter
from attnwidgets.vision.picture_sources import METHODS, PictureSources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

_OVERLAP = 0.1  # of the smaller of two boxes, from which they belong to different views of the picture
_ROUNDING = 1e-6  # of the end of the scale


class ShownPicture(ShownSources):
    """A result of `aw.vision.sources`, read for a view: the whole answer is a sentence, with its words.

    Args:
        result: The result.
    """

    result: PictureSources

    def __init__(self, result: PictureSources) -> None:
        self.result = result
        self.trace: Trace = result.trace
        self.pictured = self.trace
        self.unit = "part"
        self.method = METHODS[result.by]
        self.title = self.method.title
        self.measure = self.method.unit
        self.relation = "without" if self.measure == "nats" else "from"
        self.question = "Which part of the picture does"
        self.removal = "painted over" if self.method.of_pixels else "hidden"
        self.rows: Float = np.atleast_2d(np.asarray(result.scores.values, dtype=np.float64))
        self.values = self._together(self.rows)[None]
        self.roles = ("",) * self.rows.shape[1]
        self.spans = result.spans
        self.sentences = (self._joined(token for span in self.spans for token in span),)
        self.boxes: tuple[Any, ...] = result.scores.source_unit.boxes or ()
        if self.trace.picture is None or self.trace.picture.given is None:  # checked by vision.sources
            raise AssertionError
        self.pixels = self.trace.picture.given
        self.size: tuple[int, ...] = self.pixels.shape[:2]
        # What is below the limit stays pale, also where nothing is above it.
        self.top, self.top_of_answer = (
            max(self.least, float(np.abs(values).max(initial=0))) or 1.0
            for values in (self.rows, self.values)
        )
        self.places = places_of(self.top)

    @property
    def least(self) -> float:
        """The least number of a part that a word rests on."""
        return self.result.least

    @property
    def limit(self) -> str:
        """The same in words."""
        if self.measure == "nats":
            return super().limit
        number = self.amount(self.least) if self.measure == "share" else f"{self.least:.2g} logits"
        return f"{number}, a quarter of the largest of all words"

    def _together(self, rows: Any) -> Any:
        """Return numbers of words [word, ...] for the whole answer: their sum, of shares the mean."""
        return np.mean(rows, 0) if self.measure == "share" else np.sum(rows, 0)

    def _joined(self, positions: Iterator[int]) -> str:
        tokens = self.trace.axes(self.trace.default_stack)[0].tokens
        return joined([tokens[at] for at in positions], tokens).strip()

    @cached_property
    def parts(self) -> list[Part]:
        """The parts, in their order."""
        unit = self.result.scores.source_unit
        kind = "token" if self.removal == "hidden" else "patch" if unit.grid else "part"
        return [Part("", f"{kind} {label}", "", "") for label in unit.labels]

    @cached_property
    def words(self) -> list[list[tuple[str, Float]]]:
        """The words of the answer, with their numbers [part]."""
        return [list(zip(self.result.scores.targets, self.rows, strict=True))]

    @property
    def prompt(self) -> str:
        """The text before the answer, without the picture's tokens; of a chat, the user's last message."""
        start = self.spans[0][0]
        users = [
            each
            for each in self.trace.messages
            if each.role == "user" and each.tokens and each.tokens[0] < start
        ]
        if users:
            return users[-1].text
        special = self.trace.axes(self.trace.default_stack)[0].units["token"].special
        inside = set(picture_tokens(self.trace))
        return self._joined(at for at in range(start) if not special[at] and at not in inside)

    @cached_property
    def views(self) -> list[tuple[str, list[int]]]:
        """The views of the picture, each with its parts, which do not overlap: tiles, and the whole."""
        boxes = np.array(self.boxes)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        views: list[list[int]] = [[]]
        for at, box in enumerate(boxes):
            last = views[-1]
            high, wide = (
                np.minimum(boxes[last, axis + 2], box[axis + 2]) - np.maximum(boxes[last, axis], box[axis])
                for axis in (0, 1)
            )
            shared = high.clip(0) * wide.clip(0)
            if (shared > _OVERLAP * np.minimum(areas[last], areas[at])).any():
                views.append([])
            views[-1].append(at)
        # Labels begin with the number of a tile, or of the whole, which is first where tiles are a mosaic.
        labels = self.result.scores.labels
        counts = [len({labels[part].partition(":")[0] for part in parts}) for parts in views]
        whole = counts.index(1) if 1 in counts else 0
        tiles = "tiles" if len(views) == 2 else "tiles {}"  # noqa: PLR2004 - the whole, and the others
        return [
            ("whole picture" if number == whole else tiles.format(number), parts)
            for number, parts in enumerate(views)
        ]

    def strong(self) -> list[int]:
        """Return the words that rest on a part."""
        return [at for at, row in enumerate(self.rows) if row.max() >= self.least > 0]

    def opening(self) -> dict[str, Any]:
        """Return what the view opens on: the word with the largest number of a part, and that part's view."""
        word, part = np.unravel_index(self.rows.argmax(), self.rows.shape)
        views = self.views
        return {
            "word": int(word),
            "views": [name for name, _ in views],
            "view": next(at for at, (_, parts) in enumerate(views) if part in parts),
        }

    def target(self, sentence: int, word: int | None) -> int | None:
        """Return the target of the result that a word is; None: the whole answer, which is none."""
        del sentence
        return word

    def written_without(self, part: int | None) -> str:
        """Return the answer that the model writes without a part; None: with all of them."""
        answer = [token for span in self.spans for token in span]
        if part is None or self.removal == "hidden":
            return written_without(
                self.trace, () if part is None else picture_tokens(self.trace)[part : part + 1], answer
            )
        return written_without(self.trace, (), answer, painter(self.trace)(self.boxes[part]))

    @property
    def removable(self) -> int:
        """The number of parts that can be taken away: all."""
        return len(self.roles)

    def rests(self, sentence: int) -> str:
        """Return in words on which part each word of the answer rests."""
        del sentence
        targets = self.result.scores.targets
        strong = self.strong()
        lines = [
            f"“{cut(str(targets[at]))}” rests most on {self.named(int(self.rows[at].argmax()))}: "
            f"{self.amount(self.rows[at].max())}."
            for at in strong
        ]
        if len(strong) < len(targets):
            which = "The other words rest" if strong else f"“{cut(self.sentences[0])}” rests"
            lines.append(f"{which} on no part of the picture: all are below {self.limit}.")
        return " ".join(lines)

    def balance(self, word: int | None) -> str:
        """Return how much of a word is the picture's and how much the text's; None: of the whole answer."""
        result = self.result

        def of(values: Any) -> str:
            return self.amount(float(self._together(values) if word is None else values[word]))

        picture, text = of(result.picture), of(result.text)
        if self.measure == "nats":
            line = (
                f"The whole picture gives {picture}; the text alone {text}, counted from a token at random."
            )
        elif result.residual is not None:
            line = f"The picture has {picture}, the text {text}; {self.method.kept_by} {of(result.residual)}."
        else:
            line = f"The picture has {picture}, the text {text}."
        if self.measure != "nats" and len(self.views) > 1:
            views = {name: self.rows[:, parts].sum(1) for name, parts in self.views}
            rest = np.array(result.picture) - self.rows.sum(1)
            if np.abs(rest).max() > _ROUNDING * self.top:
                views["new lines and class tokens"] = rest
            line += f" Of the picture: {', '.join(f'{name} {of(values)}' for name, values in views.items())}."
        return line.replace("-", "−")

    def _notes(self) -> list[str]:
        """Return the remarks of the method, besides those of the trace; losses have none but `cover`."""
        notes = self.result.scores.warning.split("; ") if self.measure != "nats" else []
        return [note for note in notes if note and note not in self.trace.warning]

    @property
    def cover(self) -> str:
        """That losses are small where several parts show the same; "" of methods that take nothing away."""
        alone = "Parts that show the same cover for each other: each is then small alone."
        return alone if self.measure == "nats" else ""

    def described(self) -> dict[str, Any]:
        """Return `ShownSources` of sources.ts, with the boxes of the parts as shares of the sides."""
        high, wide = self.size
        picture = {
            "size": [high, wide],
            "boxes": [rounded(np.array(box) / (high, wide, high, wide)) for box in self.boxes],
            "views": [parts for _, parts in self.views],
            "prompt": cut(self.prompt),
            "strong": self.strong(),
            "most": rounded(self.rows.max(1)),
            "balance": [self.balance(at) for at in range(len(self.rows))],
            "balanceOfAll": self.balance(None),
            "top": self.top_of_answer,
            "how": "; ".join([self.method.about, *self._notes()]),
        }
        return super().described() | {"top": self.top, "picture": picture}
