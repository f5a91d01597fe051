"""The options that methods leave open, the values that can be defended, and their combinations."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.registry.registry import methods

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BASELINES = ("pad", "mask", "mean")  # zeros are far from any input that a model has seen
_DISTANCES = ("l1", "l2")
_ORDERS = ("output_first", "input_first")
_WEIGHTS = (0.5, 0.8)  # as published; about the share that Kobayashi et al. 2021 measured by norms
HEADS = "heads"
"""For a map whose method does not reduce its heads: how they become one."""

CHOICES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "alti": {"distance": _DISTANCES, "after": ("norm1", "norm2")},
    "alti_logit": {"distance": _DISTANCES, "initial": ("own", "apart"), "biases": ("shared", "apart")},
    "attention": {HEADS: ("mean", "max")},
    "attention_flow": {"head_reduce": ("mean", "max"), "residual_weight": _WEIGHTS},
    "attention_norm": {"variant": ("attn", "res", "res_ln", "enc")},
    "chefer": {"rule": ("iccv2021", "cvpr2021"), "head_reduce": ("mean", "sum"), "order": _ORDERS},
    "decompx": {"bias": ("absdot", "abssim", "norm"), "activation": ("zero_origin", "linear_approximation")},
    "deeplift": {"baseline": _BASELINES},
    "globenc": {"normalize": ("none", "row")},
    "input_x_gradient": {"reduce": ("sum", "l2", "l1")},
    "integrated_gradients": {"baseline": _BASELINES, "reduce": ("sum", "l2")},
    "lrp": {"rule": ("attnlrp", "cp_lrp"), "bias": ("absorb", "ignore")},
    "occlusion": {"baseline": _BASELINES},
    "rollout": {"head_reduce": ("mean", "max"), "residual_weight": _WEIGHTS, "order": _ORDERS},
    "saliency": {"reduce": ("l2", "l1")},
    "shapley_sampling": {"baseline": _BASELINES},
    "value_zeroing": {"distance": ("cosine", "euclidean"), "reduce": ("mean", "max")},
}
"""By method and option, the values that can be defended, the published one first."""


def choices_of(name: str, wanted: Any) -> dict[str, tuple[Any, ...]]:
    """Return the open options of a method, with their values.

    Args:
        name: A method.
        wanted: "all"; names of options; or a mapping from options to values.

    Raises:
        ValueError: If nothing is known to be open, or an option is unknown; the message lists what is open.
    """
    known = dict(CHOICES.get(name, {}))
    allowed = {*methods()[name].options, HEADS}
    if isinstance(wanted, str) and wanted == "all":
        if not known:
            raise ValueError(
                f"{name!r} has no known open options; give choices={{option: values}}. "
                f"Methods that have some: {listed(sorted(CHOICES))}."
            )
        return known
    if hasattr(wanted, "items"):
        chosen = {str(option): tuple(values) for option, values in wanted.items()}
    else:
        allowed = set(known)
        chosen = {
            option: known.get(option, ()) for option in ([wanted] if isinstance(wanted, str) else wanted)
        }
    for option in chosen:
        if option not in allowed:
            there = listed(sorted(allowed)) or "nothing"
            near = suggest(str(option), allowed)
            raise ValueError(f"choices: {option!r} is not open in {name!r}; choose from {there}.{near}")
    return chosen


def combinations(values: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every combination of choices as its name and its options, the published one first."""
    for combined in product(*values.values()):
        options = dict(zip(values, combined, strict=True))
        yield ", ".join(f"{option}={value!r}" for option, value in options.items()), options
