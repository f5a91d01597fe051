"""A picture and its captions: where each caption, or each word of one, is seen in the picture.

Models that compare (CLIP, SigLIP) have no attention between words and patches. What links them is the
similarity of two vectors, and Chefer's rule follows it into the picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from attnwidgets._progress import progress
from attnwidgets.explanations.attribution.chefer import PAPER, chefer
from attnwidgets.explanations.explanation import Outcomes
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace, provenance_of, require_trace
from attnwidgets.explanations.targets.resolve import compares
from attnwidgets.tracing.gradients.differentiable import differentiable
from attnwidgets.tracing.prediction import Prediction
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


def captions(traces: Sequence[Trace], *, start_layer: int = 0) -> Attributions:
    """Where the picture speaks for each of several captions, and which caption fits best.

        traces = aw.trace(model, processor, ["a cat", "a dog"], image=picture)
        aw.ImageView(aw.vision.captions(traces))

    For every caption, Chefer's relevance (`aw.chefer`) of its `logits_per_image` in the tower that reads the
    picture.

    Args:
        traces: One trace for each caption, of one model and one picture.
        start_layer: As in `aw.chefer`; -1 is the default of the authors' notebook for CLIP.

    Returns:
        Attributions [caption, token], not negative; the targets are the captions. `.predictions` are the
        probabilities of the captions among each other (softmax; each on its own where the model was trained
        so, as SigLIP was), `.provenance["logits_per_image"]` the similarities in the order of the captions.

    Raises:
        ValueError: If there is no trace, or they are not of one model and one picture.
        UnsupportedModelError: If the model compares no picture with a caption.
        TypeError: If `traces` is one trace, or one of them is none.
        IndexError: If there is no layer `start_layer`.

    Source: Chefer et al. 2021 (ICCV), equations 5 and 6; the authors' notebook for CLIP.

    Example:
        >>> import torch, transformers
        >>> small = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
        >>> text = {**small, "vocab_size": 40_000}
        >>> seen = {**small, "image_size": 32, "patch_size": 8}
        >>> config = transformers.ChineseCLIPConfig(text_config=text, vision_config=seen)
        >>> model = transformers.ChineseCLIPModel(config).eval()
        >>> size = {"height": 32, "width": 32}
        >>> reader = transformers.ChineseCLIPImageProcessor(size=size, crop_size=size)
        >>> processor = transformers.ChineseCLIPProcessor(reader, aw.demo_model("classifier")[1])
        >>> picture = np.zeros((40, 40, 3), "uint8")
        >>> traces = aw.trace(model, processor, ["a cat", "a dog"], image=picture)
        >>> aw.vision.captions(traces).targets
        ('a cat', 'a dog')
    """
    if is_trace(traces):
        raise TypeError("vision.captions compares traces of several captions: give a list of them.")
    if not traces:
        raise ValueError("traces is empty: aw.trace(model, processor, captions, image=picture) returns them.")
    for trace in traces:
        _require_caption(trace, "vision.captions")
    first = traces[0]
    pixels = first.inputs["pixel_values"]
    if any(trace.model is not first.model for trace in traces):
        raise ValueError("vision.captions compares captions by one model, and these traces are of several.")
    if not all(torch.equal(trace.inputs["pixel_values"], pixels) for trace in traces):
        raise ValueError("vision.captions compares captions of one picture, and these traces are of several.")
    found = [
        chefer(trace, stack="vision", start_layer=start_layer)
        for trace in progress(traces, "captions of the picture")
    ]
    logits = torch.stack([cast("Tensor", trace.logits)[0].double() for trace in traces])
    names = tuple(trace.axes("text")[0].text for trace in traces)
    apart = getattr(first.model, "logit_bias", None) is not None
    shares = logits.sigmoid() if apart else logits.softmax(-1)
    order = shares.argsort(descending=True).tolist()
    said = Outcomes("caption", tuple(Prediction(names[i], float(shares[i]), i) for i in order))
    common = provenance_of(
        first,
        "vision",
        "captions",
        title="Chefer's relevance for captions",
        paper=PAPER,
        options={"start_layer": start_layer},
        facts={"logits_per_image": logits.tolist()},
    )
    return Attributions(
        np.stack([one.values for one in found]),
        axis=first.axes("vision")[0],
        target=names,
        unit="patch",
        **(common | {"predictions": said}),
    )


def caption_words(trace: Trace, *, start_layer: int = 0) -> MixingMap:
    """Where the picture speaks for each word of its caption: click a word, or a patch for its words.

    With t the caption's vector, t_w that of the caption whose word w has embeddings of zeros, and v the
    picture's, the similarity that w brings is v (t - t_w). A row is Chefer's relevance of that number in the
    tower that reads the picture. Two passes of the model a word.

    Args:
        trace: A trace of a picture and its caption.
        start_layer: As in `aw.chefer`.

    Returns:
        MixingMap [1, word, token] over the patches of the picture, not negative. Rows have no common sum: a
        word that brings nothing has a row near zero. `.provenance["brought"]` is the similarity that each
        word brings.

    Raises:
        UnsupportedModelError: If the model compares no picture with a caption.
        TypeError: If `trace` is no trace.
        IndexError: If there is no layer `start_layer`.

    Source: Chefer et al. 2021 (ICCV), equations 5 and 6, of a difference of similarities; the difference is
    ours.

    Example:
        >>> import torch, transformers
        >>> small = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
        >>> text = {**small, "vocab_size": 40_000}
        >>> seen = {**small, "image_size": 32, "patch_size": 8}
        >>> config = transformers.ChineseCLIPConfig(text_config=text, vision_config=seen)
        >>> model = transformers.ChineseCLIPModel(config).eval()
        >>> size = {"height": 32, "width": 32}
        >>> reader = transformers.ChineseCLIPImageProcessor(size=size, crop_size=size)
        >>> processor = transformers.ChineseCLIPProcessor(reader, aw.demo_model("classifier")[1])
        >>> picture = np.zeros((40, 40, 3), "uint8")
        >>> trace = aw.trace(model, processor, "a black cat", image=picture)
        >>> aw.vision.caption_words(trace).query.tokens
        ('a', 'black', 'cat')
    """
    _require_caption(trace, "vision.caption_words")
    unit = trace.axes("text")[0].units["word"]
    places = [place for place, special in enumerate(unit.special) if not special]
    words = [unit.labels[place] for place in places]
    parts, picture = _parts(trace, [unit.spans[place] for place in places])
    rows = []
    for part in progress(parts, "words of the caption"):
        found = chefer(trace, _along(part), stack="vision", start_layer=start_layer)
        # What the row keeps of itself is no word's.
        row = found.provenance["options"]["row"]
        itself = np.eye(len(found.values))
        rows.append(np.asarray(found.values) - (itself.mean(axis=0) if row is None else itself[row]))
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


def _require_caption(trace: Any, name: str) -> None:
    """Raise unless a trace holds a picture and a caption that its model compares."""
    require_trace(trace, name)
    if not compares(trace):
        raise UnsupportedModelError(
            f"{name} needs a model that compares a picture with a caption (CLIP, SigLIP), and its trace of "
            "both: aw.trace(model, processor, caption, image=picture)."
        )


def _parts(trace: Trace, spans: Sequence[Sequence[int]]) -> tuple[list[Tensor], Tensor]:
    """Return what each word brings to the caption's vector, times the model's scale, and the picture's."""
    scale = getattr(trace.model, "logit_scale", None)
    factor = 1.0 if scale is None else float(scale.detach().exp())
    with differentiable(trace, "vision.caption_words", back=False) as model:
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
