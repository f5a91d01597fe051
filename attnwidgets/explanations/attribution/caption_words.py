"""The words of a caption, and where each is seen in the picture, in models that compare (CLIP, SigLIP).

These models have no attention between words and patches: only the similarity of two vectors links them. The
part of the similarity that a word brings is followed into the picture by Chefer's rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.explanations.attribution.chefer import PAPER, chefer
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import Need
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace, provenance_of, require_trace
from attnwidgets.explanations.targets.resolve import compares
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


def _compares(trace: Any, _: str) -> str:
    if not is_trace(trace):
        return "and this is not a trace"
    if not compares(trace):
        return "and this trace is not of one"
    return "" if trace.model is not None else "and these numbers were given without it"


COMPARED = Need("caption", "a model that compares a picture with a caption, and both", _compares)
"""The requirement of methods that explain the similarity of a picture and its caption."""


@method(
    "caption_words",
    question="For this prediction",
    gist="where each word of a caption is seen in the picture",
    paper=PAPER,
    needs=COMPARED,
    returns="MixingMap [1, word, token] from the caption's words to patches",
    cost="one pass for each word, and one forward and back",
    speed="seconds",
)
def caption_words(trace: Trace, *, start_layer: int = 0) -> MixingMap:
    """Where the picture speaks for each word of its caption: click a word, or a patch for its words.

    With t the caption's vector, t_w that of the caption whose word w has embeddings of zeros, and v the
    picture's, the similarity that w brings is v (t - t_w). A row is Chefer's relevance of that number in the
    tower that reads the picture. It takes two passes of the model for each word.

    Args:
        trace: A trace of a picture and its caption.
        start_layer: As in `aw.chefer`.

    Returns:
        MixingMap [1, word, token] over the patches of the picture, not negative. Rows have no common sum: a
        word that brings nothing has a row near zero. `.provenance["brought"]` is the similarity that each
        word brings.

    Raises:
        UnsupportedModelError: If the model compares no picture with a caption.
        TypeError: If `trace` is not a trace.
        IndexError: If `start_layer` is out of range.

    Source: Chefer et al. 2021 (ICCV), equations 5 and 6, of a difference of similarities; the difference is
    ours.

    Example:
        >>> print(aw.methods()["caption_words"].needs)
        a model that compares a picture with a caption, and both
    """
    require_compared(trace, "caption_words")
    unit = trace.axes("text")[0].units["word"]
    positions = [index for index, special in enumerate(unit.special) if not special]
    words = [unit.labels[position] for position in positions]
    parts, picture = _parts(trace, [unit.spans[position] for position in positions])
    rows = []
    for part in progress(parts, "words of the caption"):
        result = chefer(trace, _along(part), stack="vision", start_layer=start_layer)
        # The row's share of itself belongs to no word.
        row = result.provenance["options"]["row"]
        itself = np.eye(len(result.values))
        rows.append(np.asarray(result.values) - (itself.mean(axis=0) if row is None else itself[row]))
    key = trace.axes("vision")[1]
    return MixingMap(
        np.stack(rows),
        query=TokenAxis.plain(words),
        key=key,
        stochastic=False,
        causal=False,
        **provenance_of(
            trace,
            "vision",
            "caption_words",
            title="Chefer's relevance for words",
            paper=PAPER,
            options={"start_layer": start_layer},
            facts={"brought": [float(part @ picture) for part in parts]},
        ),
    )


def require_compared(trace: Any, name: str) -> None:
    """Raise unless a trace holds a picture and a caption that its model compares."""
    require_trace(trace, f"vision.{name}")
    if not compares(trace):
        raise UnsupportedModelError(
            f"{name}: it needs a model that compares a picture with a caption (CLIP, SigLIP), and its trace "
            "of both: aw.trace(model, processor, caption, image=picture)."
        )


def _parts(trace: Trace, spans: Sequence[Sequence[int]]) -> tuple[list[Tensor], Tensor]:
    """Return each word's part of the caption's vector, times the model's scale, and the picture's vector."""
    from attnwidgets.tracing.gradients.differentiable import differentiable

    scale = getattr(trace.model, "logit_scale", None)
    factor = 1.0 if scale is None else float(scale.detach().exp())
    with differentiable(trace, "caption_words", back=False) as model:
        whole = model()
        embedded = whole.inputs["text"]
        vector = whole.outputs.text_embeds[0]
        parts = []
        for span in progress(spans, "caption without a word"):
            less = embedded.clone()
            less[:, list(span)] = 0
            parts.append(factor * (vector - model({"text": less}).outputs.text_embeds[0]))
    return parts, whole.outputs.image_embeds[0]


def _along(part: Tensor) -> Callable[[Any], Tensor]:
    """Return the target: the similarity of a picture with a part of its caption's vector."""

    def brought(outputs: Any) -> Tensor:
        similarity: Tensor = outputs.image_embeds @ part.to(outputs.image_embeds)
        return similarity

    return brought
