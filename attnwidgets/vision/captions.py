"""A picture and its captions: the patches that speak for each caption.

`caption_words` explains the words of a caption. It is a method, so that `aw.explain` and menus offer it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from attnwidgets._progress import progress
from attnwidgets.explanations.attribution.caption_words import caption_words, require_compared
from attnwidgets.explanations.attribution.chefer import PAPER, chefer
from attnwidgets.explanations.explanation import Outcomes
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import is_trace, provenance_of
from attnwidgets.tracing.prediction import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.trace import Trace

__all__ = ["caption_words", "captions"]


def captions(traces: Sequence[Trace], *, start_layer: int = 0) -> Attributions:
    """Return the relevance of patches for each of several captions, and the captions' probabilities.

        traces = aw.trace(model, processor, ["a cat", "a dog"], image=picture)
        aw.ImageView(aw.vision.captions(traces))

    For every caption, Chefer's relevance (`aw.chefer`) of its `logits_per_image` in the tower that reads the
    picture.

    Args:
        traces: A trace for each caption, of the same model and picture.
        start_layer: As in `aw.chefer`; -1 is the default of the authors' notebook for CLIP.

    Returns:
        Attributions [caption, token], not negative; the targets are the captions. `.predictions` are the
        probabilities of the captions among each other (softmax; of each separately where the model was
        trained so, as SigLIP was), `.provenance["logits_per_image"]` the similarities in the order of the
        captions.

    Raises:
        ValueError: If traces are empty, or not of the same model and picture.
        UnsupportedModelError: If the model compares no picture with a caption.
        TypeError: If `traces` is a trace, or an item is not a trace.
        IndexError: If `start_layer` is out of range.

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
        >>> aw.vision.caption_words(traces[0]).query.tokens
        ('a', 'cat')
    """
    if is_trace(traces):
        raise TypeError("vision.captions compares traces of several captions: give a list of them.")
    if not traces:
        raise ValueError("traces is empty: aw.trace(model, processor, captions, image=picture) returns them.")
    for trace in traces:
        require_compared(trace, "captions")
    first = traces[0]
    pixels = first.inputs["pixel_values"]
    if any(trace.model is not first.model for trace in traces):
        raise ValueError("vision.captions compares captions by one model, and these traces are of several.")
    if not all(torch.equal(trace.inputs["pixel_values"], pixels) for trace in traces):
        raise ValueError("vision.captions compares captions of one picture, and these traces are of several.")
    result = [
        chefer(trace, stack="vision", start_layer=start_layer)
        for trace in progress(traces, "captions of the picture")
    ]
    logits = torch.stack([cast("Tensor", trace.logits)[0].double() for trace in traces])
    names = tuple(trace.axes("text")[0].text for trace in traces)
    apart = getattr(first.model, "logit_bias", None) is not None
    shares = logits.sigmoid() if apart else logits.softmax(-1)
    order = shares.argsort(descending=True).tolist()
    outcomes = Outcomes("caption", tuple(Prediction(names[i], float(shares[i]), i) for i in order))
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
        np.stack([item.values for item in result]),
        axis=first.axes("vision")[0],
        target=names,
        unit="patch",
        **(common | {"predictions": outcomes}),
    )
