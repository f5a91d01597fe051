"""What a method leaves open: options of which more than one value can be defended, and their combinations."""

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
"""Of a map with heads that its method does not reduce: how they become one."""

CHOICES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "alti": {"distance": _DISTANCES, "after": ("norm1", "norm2")},
    "alti_logit": {"distance": _DISTANCES, "initial": ("own", "apart"), "biases": ("shared", "apart")},
    "attention": {HEADS: ("mean", "max")},
    "attention_flow": {"head_reduce": ("mean", "max"), "residual_weight": _WEIGHTS},
    "attention_norm": {"variant": ("attn", "res", "res_ln", "enc")},
    "chefer": {"rule": ("iccv2021", "cvpr2021"), "head_reduce": ("mean", "sum"), "order": _ORDERS},
    "decompx": {
        "bias": ("absdot", "abssim", "norm"),
        "activation": ("zero_origin", "linear_approximation"),
    },
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
    """Return the options of a method that are left open, with their values.

    Args:
        name: A method.
        wanted: "all"; names of options; or a mapping from options to values.

    Raises:
        ValueError: Nothing is known to be open, or an option is unknown; the message names what there is.
    """
    entry = methods()[name]
    known = dict(CHOICES.get(name, {}))
    if isinstance(wanted, str) and wanted == "all":
        if not known:
            offered = listed(sorted(CHOICES))
            raise ValueError(
                f"nothing is known to be left open by {name!r}: give choices={{option: values}}. "
                f"There are choices for {offered}."
            )
        return known
    if hasattr(wanted, "items"):
        taken = {str(option): tuple(values) for option, values in wanted.items()}
        _check(taken, {*entry.options, HEADS}, name)
        return taken
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    _check(names, known, name)
    return {option: known[option] for option in names}


def _check(names: Any, known: Any, method: str) -> None:
    for option in names:
        if option not in known:
            near = suggest(str(option), list(known))
            there = listed(sorted(known)) or "nothing"
            raise ValueError(f"choices: {option!r} is not open in {method!r}; there is {there}.{near}")


def combinations(values: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every combination of choices as its name and its options, the published one first."""
    for combined in product(*values.values()):
        options = dict(zip(values, combined, strict=True))
        yield ", ".join(f"{option}={value!r}" for option, value in options.items()), options
