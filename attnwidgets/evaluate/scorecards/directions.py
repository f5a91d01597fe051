"""Which way each metric is read: what a better score says, in a few words."""

from __future__ import annotations

DIRECTIONS: dict[str, tuple[str, str]] = {
    "comprehensiveness": ("higher", "the prediction falls without the important elements"),
    "sufficiency": ("lower", "the important elements alone keep the prediction"),
    "log_odds": ("lower", "the prediction falls without the important elements"),
    "deletion": ("lower", "the prediction falls early as the important elements go"),
    "insertion": ("higher", "the prediction returns early with the important elements"),
    "abpc": ("higher", "what matters to the prediction goes first, and what does not goes last"),
    "pointing_game": ("higher", "the highest value lies on what the mask marks"),
    "energy_in_mask": ("higher", "the values lie on what the mask marks"),
    "pixel_accuracy": ("higher", "what is above the mean is what the mask marks"),
    "mean_iou": ("higher", "what is above the mean is what the mask marks"),
    "mean_ap": ("higher", "values rank first what the mask marks"),
    "fidelity_plus": ("higher", "the decision changes without the important elements"),
    "fidelity_minus": ("lower", "the important elements alone keep the decision"),
    "characterization": ("higher", "the important elements are both needed and enough"),
    "non_sensitivity": ("lower", "elements have a value if and only if they have an effect"),
    "monotonicity": ("higher", "larger values go with larger effects"),
    "loss_monotonicity": ("higher", "larger values go with larger effects"),
    "leave_one_out_tau": ("higher", "elements rank as their single removals do"),
    "recall": ("higher", "it finds more of what people marked"),
    "recall_of_truth": ("higher", "it finds more of what is known to decide"),
    "token_f1": ("higher", "it names what people marked, and little else"),
    "iou": ("higher", "it overlaps with what people marked"),
    "iou_f1": ("higher", "it overlaps with what people marked"),
    "auprc": ("higher", "it ranks first what people marked"),
    "average_precision": ("higher", "the elements that should lead rank first"),
    "infidelity": ("lower", "values add up to what the score loses"),
    "max_sensitivity": ("lower", "the explanation is stable under noise"),
    "average_sensitivity": ("lower", "the explanation is stable under noise"),
    "local_lipschitz": ("lower", "the explanation is stable under noise"),
    "consistency": ("higher", "other seeds give the same explanation"),
    "distance": ("lower", "a model that computes the same gets the same explanation"),
    "effective_complexity": ("lower", "few elements are enough"),
    "relative_loss": ("higher", "performance falls without the important elements"),
    "control": ("lower", "the probe learns less by heart"),
    "selectivity": ("higher", "states tell more than the probe learns by heart"),
    "compression": ("higher", "the labels are read from few examples"),
    "dot_product": ("higher", "more of the context is found in the cues"),
}
"""By a metric's name: whether "higher" or "lower" is better, and what that says."""

_OF_FUNCTION: dict[tuple[str, str], str] = {
    # Not better: a layer from which more can be read is not a better layer, and this alone is not a finding.
    ("probe", "accuracy"): "higher: more can be read; compare the baselines",
    ("probe", "accuracy_seen"): "higher: more is read, or learnt by heart: see control",
    ("remove_and_retrain", "accuracy"): "lower is better: training lacks the important elements",
    ("mislabelled", "average_precision"): "higher is better: wrong labels rank first",
    ("mislabelled", "recall"): "higher is better: more of the first have wrong labels",
}
"""By a function of `aw.evaluate` or `aw.concepts` and the metric, where the name alone says too little."""


def direction_of(metric: str, function: str = "") -> str:
    """Return which way a metric is read, in words; a neutral text for a metric without a direction.

    Args:
        metric: Its name.
        function: Name of the function that measured it.
    """
    if (function, metric) in _OF_FUNCTION:
        return _OF_FUNCTION[function, metric]
    known = DIRECTIONS.get(metric) or next(
        (text for name, text in DIRECTIONS.items() if metric.startswith((f"{name}_", f"{name} "))), None
    )
    return f"{known[0]} is better: {known[1]}" if known else "neither high nor low is better by itself"
