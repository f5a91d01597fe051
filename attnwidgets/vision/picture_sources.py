"""aw.vision.sources: on which part of a picture each word of an answer rests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._tables import Table
from attnwidgets.circuits.sentences.sources import WEAK
from attnwidgets.explanations.attribution.chefer import PAPER as CHEFER_PAPER
from attnwidgets.explanations.attribution.gradients import (
    INPUT_X_GRADIENT_PAPER,
    INTEGRATED_GRADIENTS_PAPER,
)
from attnwidgets.explanations.attribution.lrp import PAPERS as LRP_PAPERS
from attnwidgets.explanations.mixing.rollout import PAPER as ROLLOUT_PAPER
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace
from attnwidgets.explanations.viewable import Viewable, bundle_of
from attnwidgets.tracing.text.axes import media_axis
from attnwidgets.vision.picture_answer import picture_answer
from attnwidgets.vision.picture_relevance import (
    STEPS,
    gradient_of_tokens,
    integrated_gradients_of_tokens,
    relevance_of_pixels,
    relevance_of_tokens,
    shares_by_chefer,
    shares_by_rollout,
)
from attnwidgets.vision.picture_removal import painted_over, tokens_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.text.units import Box
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.vision.picture_answer import PartValues, PictureAnswer

By = Literal[
    "paint",
    "hide",
    "lrp",
    "lrp_pixels",
    "integrated_gradients",
    "input_x_gradient",
    "chefer",
    "rollout",
]
PAPER = "Zeiler and Fergus 2014, Visualizing and Understanding Convolutional Networks"
_QUARTER = 0.25  # of the largest number of all words


@dataclass(frozen=True)
class PartMethod:
    """A way to measure how much a word rests on the parts of a picture.

    Attributes:
        measure: Returns the numbers of an answer.
        unit: Their unit.
        title: What they are.
        about: How they come about, and the trap.
        paper: The method's paper.
        of_pixels: Whether the parts are of the given picture; else they are tokens of the language model.
        kept_by: What has the `residual`.
    """

    measure: Callable[[PictureAnswer], PartValues]
    unit: Literal["nats", "logits", "share"]
    title: str
    about: str
    paper: str
    of_pixels: bool = False
    kept_by: str = ""


METHODS: dict[By, PartMethod] = {
    "paint": PartMethod(
        painted_over,
        "nats",
        "nats lost with a part of the picture painted over",
        "parts of the picture painted over with its mean colour: the tower reads it again",
        PAPER,
        of_pixels=True,
    ),
    "hide": PartMethod(
        tokens_hidden,
        "nats",
        "nats lost with a token of the picture hidden",
        "tokens hidden from the text: the tower may have copied their content to others",
        PAPER,
    ),
    "lrp": PartMethod(
        relevance_of_tokens,
        "logits",
        "relevance of the picture's tokens, in logits",
        "relevance of what the language model reads at each token: the tower may have copied it from others",
        LRP_PAPERS["attnlrp"],
        kept_by="biases and the softmax keep",
    ),
    "lrp_pixels": PartMethod(
        relevance_of_pixels,
        "logits",
        "relevance of the picture's pixels, in logits",
        "relevance of pixels, through the tower, summed over the box of each token",
        LRP_PAPERS["attnlrp"],
        of_pixels=True,
        kept_by="biases, positions and the softmax keep",
    ),
    "integrated_gradients": PartMethod(
        integrated_gradients_of_tokens,
        "logits",
        "integrated gradients of the picture's tokens, in logits",
        "from a picture whose tokens are all their mean, along a straight line; words stay as they are",
        INTEGRATED_GRADIENTS_PAPER,
        kept_by=f"{STEPS} steps miss",
    ),
    "input_x_gradient": PartMethod(
        gradient_of_tokens,
        "logits",
        "input x gradient of the picture's tokens, in logits",
        "to first order: the numbers of all tokens do not sum to the logit",
        INPUT_X_GRADIENT_PAPER,
    ),
    "chefer": PartMethod(
        shares_by_chefer,
        "share",
        "share of the picture's tokens in Chefer's relevance",
        "of the attention that matters for the word, and of the token that predicts it, which counts 1",
        CHEFER_PAPER,
    ),
    "rollout": PartMethod(
        shares_by_rollout,
        "share",
        "share of the picture's tokens in attention rollout",
        "attention multiplied through the layers: it does not depend on which word was predicted",
        ROLLOUT_PAPER,
    ),
}
"""How parts are measured, by name."""


@dataclass(frozen=True, repr=False)
class PictureSources(Table, Viewable):
    """How much each word of an answer rests on the parts of a picture.

    Displayed, and by `.view()`, it is the picture with its parts, for each word that rests on some.

    Attributes:
        scores: Values [word, part] in `unit`, on one scale for all words: Attributions, whose elements have
            boxes (`.source_unit.boxes`, in pixels of the given picture). Negative: the word is likelier
            without the part, or the part speaks against it.
        picture: How much of each word is the picture's [word], in `unit`. By "paint" and "hide", the nats
            that it loses without the whole picture; else the sum over the picture, or its share.
        text: How much of each word is the text's [word]. By "paint" and "hide", the nats by which it is
            likelier without the picture than a token chosen at random: with `picture`, the sum is log p(word)
            + log(size of the vocabulary) for every token of it. By "integrated_gradients", the word's logit
            where all tokens of the picture are their mean; else the sum over the text, or its share.
        by: Name of the method.
        spans: The tokens of each word.
        trace: The picture and its text, with the model.
        residual: The word's logit less `picture` and `text` [word], of LRP and integrated gradients: what
            biases and the tower keep, or the steps miss. None by other methods.
    """

    kind: ClassVar[str] = "PictureSources"
    viewed_by: ClassVar[str] = "circuits.sources_view:SourcesView"

    scores: Attributions
    picture: tuple[float, ...]
    text: tuple[float, ...]
    by: By
    spans: tuple[tuple[int, ...], ...]
    trace: Trace
    residual: tuple[float, ...] | None = None

    @property
    def unit(self) -> Literal["nats", "logits", "share"]:
        """The unit of the numbers: "nats", "logits", or "share" (0 to 1)."""
        return METHODS[self.by].unit

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the answer."""
        target = self.scores.target
        return target if isinstance(target, tuple) else (str(target),)

    @property
    def least(self) -> float:
        """The least value, in `unit`, of a part that a word rests on.

        0.6 nats. Logits and shares have no such limit, and it is a quarter of the largest value of all words.
        """
        return WEAK if self.unit == "nats" else _QUARTER * float(self._values().max(initial=0.0))

    def strongest(self) -> tuple[Box | None, ...]:
        """Return the box of the part that each word rests on most.

        None where no part matters much: the largest value is below `least`, or not above 0.
        """
        boxes = self.scores.source_unit.boxes or ()
        best = self._values().argmax(1)
        return tuple(
            boxes[at] if row[at] >= self.least and row[at] > 0 else None
            for at, row in zip(best, self._values(), strict=True)
        )

    def _values(self) -> NDArray[np.float64]:
        return np.atleast_2d(np.asarray(self.scores.values, dtype=np.float64))

    def _columns(self) -> Iterator[Columns]:
        """Yield word, part, box and value, in a column that is named by its unit."""
        unit = self.scores.source_unit
        for word, row in zip(self.words, self._values(), strict=True):
            yield {
                "word": [word] * len(row),
                "part": unit.labels,
                "box": unit.boxes,
                self.unit: row.tolist(),
            }

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the view, where a kernel can show it, and text."""
        return bundle_of(self, **options)

    def __repr__(self) -> str:
        form = "{!r} {:.0%} of the picture, {:.0%} of the text"
        if self.unit != "share":
            form = f"{{!r}} {{:+.1f}} {self.unit} of the picture, {{:+.1f}} of the text"
        each = zip(self.words, self.picture, self.text, strict=True)
        return f"<PictureSources by {self.by!r}: {'; '.join(form.format(*row) for row in each)}>"


def sources(trace: Any, answer: Any = None, *, by: By = "paint") -> PictureSources:
    """Return on which part of a picture each word of an answer rests.

        "paint"                 log p(w) - log p(w with the part painted over)       nats
        "hide"                  log p(w) - log p(w with the token hidden)            nats
        "lrp"                   relevance of the token (aw.lrp)                      logits
        "lrp_pixels"            relevance of its pixels, summed                      logits
        "integrated_gradients"  from the mean of the picture's tokens, in 20 steps   logits
        "input_x_gradient"      embedding times gradient of the token                logits
        "chefer"                share of the token in Chefer's relevance             share
        "rollout"               share of the token in attention rollout              share

    p and logits are summed over the tokens of w, each where it is predicted; shares are averaged over them.

    "paint" paints blocks of the given picture with its mean colour, reads it again with the processor, and
    runs the whole model: six blocks of the shorter side (or as many as there are tokens), then the four that
    matter most are divided. "hide" hides one token of the picture after another from the text in the language
    model. The two are different questions: where the tower has copied a part's content to other tokens,
    hiding its own token costs nothing. "lrp_pixels" asks of the pixels, like "paint", and the others of the
    tokens, like "hide". Two parts that show the same cover for each other. `aw.zoo.trained("scenes")` tells
    how often each finds the evidence: docs/vision.md.

    Args:
        trace: Trace of a picture and a text that holds the answer, made with the model's processor.
        answer: The answer's tokens as a pair (start, end); by default what was generated.
        by: Name of the method, as above.

    Returns:
        PictureSources: `.scores` [word of the answer, part] in `.unit`, `.strongest()`, `.view()`;
        `.picture` and `.text` say how much of each word is the picture's and how much the text's.

    Raises:
        ValueError: If the answer has no tokens, `by` is unknown, or the places of the picture's tokens or its
            pixels are not known; see also the method.
        UnsupportedModelError: If the trace has no model, or it predicts no tokens from those before; by
            "lrp_pixels", if the model joins tiles before it reads them (LLaVA-NeXT, LLaVA-OneVision, Molmo).
        TypeError: If `trace` is not a trace.

    Source: Zeiler and Fergus 2014, Visualizing and Understanding Convolutional Networks, section 4.2, for
    each word; of other methods see `aw.lrp`, `aw.integrated_gradients`, `aw.input_x_gradient`, `aw.chefer`
    and `aw.rollout`.

    Example:
        >>> model, processor = aw.zoo.trained("scenes")
        >>> scene = model.truth.scene(7)
        >>> text = f"{scene.text} {scene.answer}"
        >>> trace = aw.trace(model, processor, text, image=scene.image)
        >>> result = aw.vision.sources(trace, (16, 23))
        >>> [word for word, box in zip(result.words, result.strongest()) if box]
        ['red', 'middle', 'right']
        >>> relevance = aw.vision.sources(trace, (16, 23), by="lrp")
        >>> relevance.words[3], round(relevance.picture[3], 1), round(relevance.text[3], 1), relevance.unit
        ('red', 9.0, 1.5, 'logits')
    """
    require_trace(trace, "vision.sources")
    require_choice("by", by, tuple(METHODS))
    explained, method = picture_answer(trace, answer), METHODS[by]
    measured = method.measure(explained)
    covers = "parts that show the same cover for each other: each is then small alone"
    common = provenance_of(
        explained.trace,
        explained.stack,
        "vision.sources",
        paper=method.paper,
        title=f"{method.title} ({method.about})",
        options={"answer": answer, "by": by},
        notes=[covers if method.unit == "nats" else "", *measured.notes],
        facts={"unit": method.unit},
    )
    scores = Attributions(
        measured.values, axis=media_axis(measured.parts), unit="patch", target=explained.words, **common
    )
    residual = None if measured.residual is None else tuple(measured.residual.tolist())
    picture, text = tuple(measured.picture.tolist()), tuple(measured.text.tolist())
    return PictureSources(scores, picture, text, by, explained.spans, explained.trace, residual)
