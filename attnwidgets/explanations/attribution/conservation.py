"""Whether relevance is conserved: the check by which an architecture earns trust before LRP is believed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.architecture import architecture

if TYPE_CHECKING:
    from torch import Tensor, nn

TOLERANCE = 1e-4
"""How far, relative to the target, sums may be off: float32 rounding over some dozens of layers."""

_ENOUGH = 12  # tokens
_CANDIDATES = 64


@dataclass(frozen=True)
class Conservation:
    """The verdict on one architecture.

    Attributes:
        architecture: The model's class.
        target: The score that was explained, of the model without its biases.
        sums: By stack: all relevance where it enters each block and, last, where it leaves the last one.
        problem: What stands against conservation, or "".
    """

    architecture: str
    target: float
    sums: dict[str, tuple[float, ...]]
    problem: str = ""

    @property
    def conserved(self) -> bool:
        """Whether the sums equal the target at every layer."""
        return not self.problem

    @property
    def error(self) -> float:
        """The largest difference of a sum from the target, relative to it."""
        off = [abs(one - self.target) for sums in self.sums.values() for one in sums]
        return max(off, default=float("nan")) / max(abs(self.target), 1e-30)

    def __bool__(self) -> bool:
        return self.conserved

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.problem:
            return f"relevance is not conserved in {self.architecture}: {self.problem}."
        places = sum(map(len, self.sums.values()))
        return (
            f"every operation of {self.architecture} has a working rule: CP-LRP without biases, which must "
            f"hand back all of the target, sums to {self.target:.4g} at all of {places} places, to within "
            f"{self.error:.1g} of it."
        )

    def __repr__(self) -> str:
        return f"<{self.sentence}>"


_verdicts: dict[tuple[Any, ...], Conservation] = {}
_guard = threading.Lock()


def check_conservation(model: Any, *, tolerance: float = TOLERANCE, again: bool = False) -> Conservation:
    """Whether relevance is conserved in an architecture: the sums of CP-LRP equal what is explained.

    The model is run once on a short input without its biases (parameters and numbers that are added; they are
    left out while it runs, and no weight is written) and CP-LRP is taken back from its largest logit. With
    every rule in place the relevances sum to that logit at the first block's input and at every later one,
    whatever the weights; an operation without a rule, or with a wrong one, shows as a difference. What
    belongs to the architecture is kept for it (the class, the classes of its modules and what its config
    chooses, whatever its size or weights): that it conserves relevance, or has an operation without a rule.
    Sums that differ may be the weights' doing and are taken again every time, and so is everything of a model
    with hooks, which belong to that model.

    AttnLRP itself does not sum to the logit (its softmax is not conservative); this check proves that its
    rules reach every operation.

    Args:
        model: A transformers model, or a trace, whose input is then the one that is used.
        tolerance: How far sums may be off, relative to the target.
        again: Whether to check anew where a verdict is there.

    Returns:
        A `Conservation`: true where relevance is conserved; its `problem` says where it is lost.

    Raises:
        ValueError: Where gradients cannot be had (quantised weights, `torch.inference_mode`), the pass does
            not fit the memory, or its numbers say nothing about the architecture: NaN or infinite (the
            message names the layer), or a target of exactly zero.
        UnsupportedModelError: Where the model cannot be traced.

    Source: Ali et al. 2022, proposition 1; the check is attnwidgets' own.
    """
    from attnwidgets.tracing.gradients.differentiability import require_gradients
    from attnwidgets.tracing.recording.borrow import unwrap

    given = model if hasattr(model, "stack_table") else None
    if isinstance(model, (str, PathLike)):
        raise TypeError(
            f"check_conservation takes a model or a trace, not the name {str(model)!r}; load it, or give "
            "it aw.trace(name, None, text)."
        )
    inner = unwrap(model if given is None else model.model)
    require_gradients(inner, "check_conservation")
    return verdict_on(inner, given, "check_conservation", tolerance=tolerance, again=again)


def verdict_on(
    model: nn.Module, trace: Any, purpose: str, *, tolerance: float = TOLERANCE, again: bool = False
) -> Conservation:
    """Return what `check_conservation` does; `purpose` stands in its messages."""
    key = None if _has_hooks(model) else (*architecture(model), tolerance)
    with _guard:
        known = None if key is None else _verdicts.get(key)
    if known is not None and not again:
        return known
    verdict = _checked(_short(model, trace), tolerance, purpose)
    if key is not None and (verdict or not verdict.sums):
        with _guard:
            _verdicts[key] = verdict
    return verdict


def _has_hooks(model: nn.Module) -> bool:
    """Return whether hooks or methods of single modules have a say in what a model computes."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any("forward" in vars(part) or any(vars(part)[kind] for kind in kinds) for part in model.modules())


def _checked(trace: Any, tolerance: float, purpose: str) -> Conservation:
    from attnwidgets.relevance.propagate import propagate
    from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

    name = type(trace.model).__name__
    try:
        found = propagate(trace, _largest, purpose, rule="cp_lrp", bias="drop", place="block")
    except UnsupportedModelError as error:
        return Conservation(name, float("nan"), {}, str(error).removeprefix(f"{purpose}: "))
    for stack, states in found.states.items():
        wanted = len(trace.axes(stack)[0])
        if states.shape[-1] != wanted:
            problem = (
                f"its blocks are given {states.shape[-1]} vectors where there are {wanted} tokens; [token, "
                "batch, width] is not recognised as hidden states"
            )
            return Conservation(name, float("nan"), {}, problem)
    target = float(found.scores[0])
    if target == 0:
        raise ValueError(
            f"{purpose}: the largest output of this {name} is exactly 0, so that relevance has nothing to "
            "start from; look at its weights."
        )
    sums = {
        stack: tuple(float(found.total(stack, layer)[0]) for layer in range(states.shape[1]))
        for stack, states in found.states.items()
    }
    return Conservation(name, target, sums, _problem(target, sums, tolerance))


def _problem(target: float, sums: dict[str, tuple[float, ...]], tolerance: float) -> str:
    if not sums:
        return "its blocks are not found, so that sums cannot be taken"
    for stack, each in reversed(sums.items()):
        for layer in reversed(range(len(each))):
            # Written so that NaN fails.
            if not abs(each[layer] - target) <= tolerance * abs(target):
                last = len(each) - 1
                where = "behind the last layer" if layer == last else f"in layer {layer}"
                of = "" if len(sums) == 1 else f" of stack {stack!r}"
                return (
                    f"the relevances sum to {each[layer]:.5g} and not to the target, {target:.5g}; going "
                    f"back from it, the difference arises {where}{of}"
                )
    return ""


def _largest(outputs: Any) -> list[Tensor]:
    """Return the output that is farthest from zero, in the last row: where rounding counts least."""
    from attnwidgets.tracing.recording.recorder import main_output

    found = main_output(outputs)
    if found is None:
        raise ValueError("the model returns no numbers to explain")
    row = found if found.dim() == len(("batch", "class")) else found[:, -1]
    row = row.flatten(1)
    return [row[:, row.detach().abs().argmax(-1)[0]]]


def _short(model: nn.Module, trace: Any) -> Any:
    """Return a short trace: the given one, its first tokens, or one made up for the model."""
    from attnwidgets.tracing.recording.run import trace as run

    if trace is not None:
        ids = trace.input_ids
        plain = ids is not None and set(trace.inputs) <= {"input_ids", "attention_mask", "token_type_ids"}
        return run(model, None, ids[:_ENOUGH]) if plain and len(ids) > _ENOUGH else trace
    try:
        return run(model, None, **made_up(model))
    except (AttributeError, TypeError, KeyError) as error:
        raise ValueError(
            f"check_conservation knows no input to try {type(model).__name__} on; give it a trace instead of "
            "the model: aw.check_conservation(aw.trace(model, processor, ...))"
        ) from error


def made_up(model: nn.Module) -> dict[str, Any]:
    """Return an input for a model, as keywords of `aw.trace`: ids, a picture or a sound, always the same."""
    import torch

    config: Any = model.config
    generator = torch.Generator().manual_seed(0)
    takes = getattr(model, "main_input_name", "input_ids")
    if takes == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = vision.image_size
        sides = (size, size) if isinstance(size, int) else tuple(size)
        return {"image": torch.randn(getattr(vision, "num_channels", 3), *sides, generator=generator)}
    if takes == "input_features":
        shape = (config.num_mel_bins, 2 * config.max_source_positions)
        return {"audio": torch.randn(*shape, generator=generator)}
    if takes == "input_values":
        return {"audio": torch.randn(4000, generator=generator)}
    size = getattr(getattr(config, "text_config", config), "vocab_size", _CANDIDATES)
    ids = torch.randint(min(5, size - 1), size, (_ENOUGH,), generator=generator)
    return {"input_ids": ids}
