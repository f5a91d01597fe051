"""Which way each metric is read: what a high or a low score says, in a few words."""

from __future__ import annotations

DIRECTIONS: dict[str, tuple[str, str]] = {
    "comprehensiveness": ("higher", "the prediction falls without what is called important"),
    "sufficiency": ("lower", "what is called important is enough for the prediction"),
    "log_odds": ("lower", "the prediction falls without what is called important"),
    "deletion": ("lower", "the prediction falls early as what is called important goes"),
    "insertion": ("higher", "the prediction comes back early with what is called important"),
    "fidelity_plus": ("higher", "the decision changes without what is called important"),
    "fidelity_minus": ("lower", "the decision stays with what is called important alone"),
    "characterization": ("higher", "what is called important is both needed and enough"),
    "non_sensitivity": ("lower", "what has no value has no effect, and the other way round"),
    "monotonicity": ("higher", "larger values go with larger effects"),
    "loss_monotonicity": ("higher", "larger values go with larger effects"),
    "leave_one_out_tau": ("higher", "elements rank as their single removals do"),
    "recall": ("higher", "more of what people marked is found"),
    "token_f1": ("higher", "it names what people marked, and little else"),
    "iou": ("higher", "it overlaps with what people marked"),
    "iou_f1": ("higher", "it overlaps with what people marked"),
    "auprc": ("higher", "what people marked ranks first"),
    "average_precision": ("higher", "what should rank first does"),
    "infidelity": ("lower", "values add up to what the score loses"),
    "max_sensitivity": ("lower", "the explanation stays under noise"),
    "average_sensitivity": ("lower", "the explanation stays under noise"),
    "local_lipschitz": ("lower", "the explanation stays under noise"),
    "consistency": ("higher", "other seeds give the same explanation"),
    "distance": ("lower", "a model that computes the same gets the same explanation"),
    "effective_complexity": ("lower", "few elements are enough"),
    "relative_loss": ("higher", "performance is lost without what is called important"),
    "dot_product": ("higher", "more of the context is found in the cues"),
}
"""By a metric's name: whether "higher" or "lower" is better, and what it then says."""


def direction_of(metric: str) -> str:
    """Return which way a metric is read, in words; of what is neither good nor bad, that it is not."""
    known = DIRECTIONS.get(metric) or next(
        (said for name, said in DIRECTIONS.items() if metric.startswith((f"{name}_", f"{name} "))), None
    )
    if known is None:
        return "neither high nor low is better by itself"
    return f"{known[0]} is better: {known[1]}"
