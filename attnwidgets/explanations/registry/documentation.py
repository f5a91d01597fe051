"""The questions that methods answer, and descriptions of the parameters that they share."""

from __future__ import annotations

from typing import Literal, get_args

from attnwidgets._documentation import documenter

FRAGMENTS = {
    "trace": "Trace returned by `aw.trace`; for a list of traces, a list of results is returned.",
    "target": "The number to explain: a class or a token by name or number, anything from `aw.targets`, or a "
    "function of the model's outputs. By default, the model's prediction.",
    "foil": "Contrast of the target: the method explains target - foil.",
    "unit": 'Unit of the result, "token" by default; a coarser unit sums the values of its tokens.',
    "stack": '"encoder" or "decoder" of a model with both; its default otherwise.',
    "any_stack": '"encoder", "decoder" or "cross" of a model with both; its default otherwise.',
    "reduce": 'How the dimensions of an embedding become one number: "l2" (length), "l1" (sum of absolute '
    'values), "sum" (signed), "mean" (signed), "mean_abs", or "mean_square" (no square root).',
    "baseline": 'Replacement for missing information: "pad", "mask", "mean" (of all embeddings), "zero", a '
    "token by its string or id, or numbers [dim] or [token, dim]. By default the padding token, else the "
    "mask token, else the mean.",
    "at": 'Where gradients are computed: at tokens\' embeddings ("embedding"), or at the model\'s "input", '
    "the pixels of a picture or the spectrogram of a sound, summed over every patch or frame (after `reduce` "
    'over a pixel\'s colours); unit="pixel" or "bin" keeps its single numbers. Models without attention over '
    "patches are read at their input.",
    "batch_size": "Number of inputs that run together; fewer where memory is short.",
    "no_target": "`target` or `foil` matches no model output.",
}
"""Texts by placeholder: `target: {target}` in a docstring becomes `target: The number to explain: ...`."""

documented = documenter(FRAGMENTS)

Question = Literal["Attention", "What goes into a token", "For this prediction", "By perturbing"]
Speed = Literal["instant", "seconds", "minutes"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
"""In the order of menus."""

SPEEDS: tuple[Speed, ...] = get_args(Speed)
"""For a short text and a model of a hundred million parameters on a laptop, the quickest first."""
