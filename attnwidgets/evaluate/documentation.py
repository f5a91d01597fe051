"""Descriptions of parameters that many metrics share, filled into their docstrings."""

from __future__ import annotations

from attnwidgets._documentation import documenter

SHARED = {
    "traces": "Trace returned by `aw.trace`, or a list of traces.",
    "explanations": "Attributions (for several traces a list, one per trace); a name in `aw.methods()`, a "
    "pair (name, options) or a function of a trace; a list of such methods; or a mapping from names to any "
    "of these. Pass a row of a map as `.to_attributions('row', query='cls')`.",
    "methods": "Names in `aw.methods()`, pairs (name, options) or functions of a trace that return "
    "Attributions; or a mapping from names to these. Finished explanations are not accepted.",
    "target": "The target to score, as every method takes it; by default the model's prediction for "
    "the whole input. Methods given by name explain it.",
    "operator": 'How features are removed: "delete", "mask", "pad", "zero", "mean" or "attention_mask", see '
    '`aw.evaluate.OPERATORS`; of pictures also "blur", "mean_image", "zero_image" or "neighbours", see '
    '`aw.evaluate.PICTURE_OPERATORS`; of sound also "silence", see `aw.evaluate.SOUND_OPERATORS`. There is '
    "no default: scores by different operators are not comparable.",
    "removal": "An `aw.evaluate.Removal`: the operator with further options, instead of `operator`.",
    "score": 'The score f: "probability", "log_probability" or "number" (the logit, or the value of a target '
    "that is not a logit). Default: the probability, or the number if the target is not a single logit.",
    "rounding": 'How share * n is rounded to a number of features: "ceil", "floor" or "nearest". Features '
    "with equal values are ranked in text order.",
    "by": 'Rank by "value", which puts evidence against the target last, or by "magnitude".',
    "special": "Count special tokens as features. By default they are never removed and never counted.",
    "oracle": 'How the baseline "oracle" orders the features: by "leave_one_out" (the drop when a feature '
    'alone is removed) or "greedy" (n(n + 1)/2 passes); None leaves the baseline out. It is the best '
    "possible order only if features do not interact.",
    "draws": 'Number of random orders that the baseline "random" averages over.',
    "seed": "Seed of all random draws.",
    "unit": 'Unit of the features: "token", "word", ...; by default the unit of the explanations.',
    "batch_size": "Number of inputs per forward pass.",
    "force": "Run even if this needs more memory than is free.",
}
"""Descriptions by placeholder."""

documented = documenter(SHARED)
