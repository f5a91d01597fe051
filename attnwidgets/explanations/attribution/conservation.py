"""The check that LRP conserves relevance in an architecture, made before its results are trusted.

CP-LRP runs on a short input without the model's biases, and the total relevance at every block is compared
with the explained output (`_problem`). Verdicts that depend on the architecture alone are cached in
`_verdicts`. If the weights leave nothing but rounding of the output, a model of the same architecture with
random weights is checked instead.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.attribution.embedding_gradients import padded
from attnwidgets.tracing.model_state import architecture, modules_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnwidgets.tracing.gradients.differentiable import Place

TOLERANCE = 1e-4
"""Tolerated error of sums, relative to the target: float32 rounding over some dozens of layers."""

_NOISE = 1e-6
"""A target this small compared to the model's outputs is the rounding error of terms that cancel."""

_AS_LARGE = 1e-5
"""Outputs that differ by this much of the largest are as large as it."""

_EPSILON = 1e-5
_ENOUGH = 12  # tokens
_CANDIDATES = 64


@dataclass(frozen=True)
class Conservation:
    """The verdict on an architecture.

    Attributes:
        architecture: The model's class.
        target: The explained score, of the model without its biases.
        sums: By stack, the total relevance at the input of each block and, last, at the last block's output.
        problem: Why relevance is not conserved, or "".
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
        errors = [abs(total - self.target) for sums in self.sums.values() for total in sums]
        return max(errors, default=float("nan")) / max(abs(self.target), 1e-30)

    def __bool__(self) -> bool:
        return self.conserved

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.problem:
            return f"relevance is not conserved in {self.architecture}: {self.problem}."
        count = sum(map(len, self.sums.values()))
        return (
            f"every operation of {self.architecture} has a working rule: CP-LRP without biases, which must "
            f"return all of the target, sums to {self.target:.4g} at each of {count} places, with a relative "
            f"error of at most {self.error:.1g}."
        )

    def __repr__(self) -> str:
        return f"<{self.sentence}>"


_verdicts: dict[tuple[Any, ...], Conservation] = {}
_guard = threading.Lock()


def check_conservation(model: Any, *, tolerance: float = TOLERANCE, again: bool = False) -> Conservation:
    """Check that an architecture conserves relevance: the sums of CP-LRP equal the explained score.

    The model runs once on a short input without its biases (parameters and numbers that are added; they are
    left out while it runs, and no weight is written), and CP-LRP goes back from its largest logit. If every
    rule is in place, the relevances sum to that logit at the first block's input and at every later input,
    whatever the weights; an operation without a rule, or with a wrong rule, shows as a difference. If the
    weights leave nothing but rounding of that logit, random ones of the same architecture are checked.

    A verdict that depends on the architecture alone (the class, the classes of its modules and the choices of
    its config, whatever its size or weights) is cached: that it conserves relevance, or has an operation
    without a rule. Sums that differ may be due to the weights and are checked again every time, and so is any
    model with hooks.

    AttnLRP itself does not sum to the logit (its softmax is not conservative); this check proves that its
    rules reach every operation.

    Args:
        model: A transformers model, or a trace, whose input is used then.
        tolerance: Tolerated error of the sums, relative to the target.
        again: Whether to check again even if there is a verdict.

    Returns:
        A `Conservation`: true if relevance is conserved; its `problem` says where it is lost.

    Raises:
        ValueError: If gradients are unavailable (quantised weights, `torch.inference_mode`), the pass does
            not fit into memory, or its numbers say nothing about the architecture: NaN or infinity (the
            message names the layer), or an output of exactly zero.
        UnsupportedModelError: If the model cannot be traced.

    Source: Ali et al. 2022, proposition 1, on which this check is built.

    Example:
        >>> bool(aw.check_conservation(aw.demo_model("classifier")[0]))
        True
    """
    from attnwidgets.tracing.gradients.gradient_hooks import require_gradients
    from attnwidgets.tracing.recording.borrow import unwrap

    trace = model if hasattr(model, "stack_table") else None
    if isinstance(model, (str, PathLike)):
        raise TypeError(
            f"check_conservation takes a model or a trace, not the name {str(model)!r}; load it, or give "
            "it aw.trace(name, None, text)."
        )
    inner = unwrap(model if trace is None else model.model)
    require_gradients(inner, "check_conservation")
    return verdict_on(inner, trace, "check_conservation", tolerance=tolerance, again=again)


def verdict_on(
    model: nn.Module, trace: Any, purpose: str, *, tolerance: float = TOLERANCE, again: bool = False
) -> Conservation:
    """Return the verdict of `check_conservation`; its messages name `purpose`."""
    key = None if _has_hooks(model) else (*architecture(model), tolerance)
    with _guard:
        cached = None if key is None else _verdicts.get(key)
    if cached is not None and not again:
        return cached
    short = _short_trace(model, trace)
    verdict = _check(short, tolerance, purpose)
    if key is not None and not verdict and _is_rounding(verdict, short):
        verdict = _check_with_random_weights(model, tolerance, purpose) or verdict
    if key is not None and (verdict or not verdict.sums):
        with _guard:
            _verdicts[key] = verdict
    return verdict


def _has_hooks(model: nn.Module) -> bool:
    """Return whether hooks or replaced methods of single modules change the numbers of a model."""
    from attnwidgets.tracing.recording.call_scope import is_replaced

    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(is_replaced(part) or any(vars(part)[kind] for kind in kinds) for part in modules_of(model))


def _check(trace: Any, tolerance: float, purpose: str) -> Conservation:
    verdict = _check_from(trace, "block", tolerance, purpose)
    if verdict or not verdict.sums:
        return verdict
    # Later blocks may read the embeddings as well (Zamba's): from there on, all paths count.
    return _check_from(trace, "embedding", tolerance, purpose) or verdict


def _check_from(trace: Any, endpoint: Place, tolerance: float, purpose: str) -> Conservation:
    """Return the verdict on a trace's model, with gradients that end at `endpoint`; see `differentiable`."""
    from attnwidgets.relevance.rules import propagate
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    name = type(trace.model).__name__
    try:
        relevances = propagate(trace, _largest_output, purpose, rule="cp_lrp", bias="drop", place=endpoint)
    except UnsupportedModelError as error:
        return Conservation(name, float("nan"), {}, str(error).removeprefix(f"{purpose}: "))
    for stack, states in relevances.states.items():
        expected = len(trace.axes(stack)[0])
        if states.shape[-1] != expected:
            count = states.shape[-1]
            unknown = "[token, batch, width] is not recognised as hidden states"
            why = padded(count) if count > expected else unknown
            problem = f"its blocks receive {count} vectors for {expected} tokens; {why}"
            return Conservation(name, float("nan"), {}, problem)
    target = float(relevances.scores[0])
    if target == 0 and (trace.logits is None or not trace.logits.any()):
        raise ValueError(
            f"{purpose}: the largest output of this {name} is exactly 0, so relevance has nothing to start "
            "from; look at its weights."
        )
    sums = {
        stack: tuple(float(relevances.total(stack, layer)[0]) for layer in range(states.shape[1]))
        for stack, states in relevances.states.items()
    }
    problem = _problem(target, sums, tolerance) if target else "without its biases it computes exactly 0"
    return Conservation(name, target, sums, problem)


def _is_rounding(verdict: Conservation, trace: Any) -> bool:
    """Return whether the target is nothing but rounding, so that sums cannot be compared with it."""
    scale = max(1.0, 0.0 if trace.logits is None else float(trace.logits.abs().max()))
    return bool(verdict.sums) and abs(verdict.target) <= _NOISE * scale


def _check_with_random_weights(model: nn.Module, tolerance: float, purpose: str) -> Conservation | None:
    """Return the verdict on a model of the same architecture with random weights; None if it cannot be built.

    Some weights cannot test the rules: without its biases, a model may compute 0 for every input.
    """
    import torch

    config: Any = copy.deepcopy(getattr(model, "config", None))
    for name in vars(config) if config is not None else ():
        # An epsilon that makes norms vanish would hide the layers between them.
        if "norm" in name and "eps" in name:
            setattr(config, name, _EPSILON)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model_class: Any = type(model)
            random_model: nn.Module = model_class(config).float().eval()
    except (AttributeError, TypeError, ValueError):
        return None
    if architecture(random_model)[:2] != architecture(model)[:2]:
        return None  # modules were replaced: a new model would not have them
    return _check(_short_trace(random_model, None), tolerance, purpose)


def _problem(target: float, sums: dict[str, tuple[float, ...]], tolerance: float) -> str:
    if not sums:
        return "its blocks are not found, so sums cannot be computed"
    for stack, totals in reversed(sums.items()):
        for layer, total in reversed(list(enumerate(totals))):
            # Written so that NaN fails.
            if not abs(total - target) <= tolerance * abs(target):
                where = "after the last layer" if layer == len(totals) - 1 else f"in layer {layer}"
                of = "" if len(sums) == 1 else f" of stack {stack!r}"
                return (
                    f"the relevances sum to {total:.5g} and not to the target, {target:.5g}; going back from "
                    f"it, the difference arises {where}{of}"
                )
    return ""


def _largest_output(outputs: Any) -> list[Tensor]:
    """Return the output of the last row that is farthest from zero, where rounding matters least."""
    import torch

    from attnwidgets.tracing.recording.returned import main_output

    output = main_output(outputs)
    if output is None:
        raise ValueError("the model returns no numbers to explain")
    row = (output if output.dim() == len(("batch", "class")) else output[:, -1]).flatten(1)
    sizes = row.detach()[0].abs()
    # Two classes may be equally far from zero: the first is taken, whatever rounding prefers.
    return [row[:, int((sizes >= sizes.max() * (1 - _AS_LARGE)).to(torch.uint8).argmax())]]


def _short_trace(model: nn.Module, trace: Any) -> Any:
    """Return a short trace: `trace`, its first tokens, or that of a made-up input."""
    from attnwidgets.tracing.failed_pass import FailedPassError
    from attnwidgets.tracing.recording.run import trace as run

    if trace is not None:
        ids = trace.input_ids
        plain = ids is not None and set(trace.inputs) <= {"input_ids", "attention_mask", "token_type_ids"}
        return run(model, None, ids[:_ENOUGH]) if plain and len(ids) > _ENOUGH else trace
    try:
        return run(model, None, **made_up(model))
    except (AttributeError, TypeError, KeyError, FailedPassError) as error:
        raise ValueError(
            f"check_conservation cannot make up an input for {type(model).__name__}; give it a trace "
            "instead of the model: aw.check_conservation(aw.trace(model, processor, ...))"
        ) from error


def made_up(model: nn.Module) -> dict[str, Any]:
    """Return a fixed input for a model, as keywords of `aw.trace`: token ids, a picture or a sound."""
    import torch

    from attnwidgets.tracing.recording.inputs import limit_of

    config: Any = model.config
    generator = torch.Generator().manual_seed(0)
    main_input = getattr(model, "main_input_name", "input_ids")
    if main_input == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = vision.image_size
        sides = (size, size) if isinstance(size, int) else tuple(size)
        return {"image": torch.randn(getattr(vision, "num_channels", 3), *sides, generator=generator)}
    if main_input == "input_features":
        shape = (config.num_mel_bins, 2 * config.max_source_positions)
        return {"audio": torch.randn(*shape, generator=generator)}
    if main_input == "input_values":
        return {"audio": torch.randn(4000, generator=generator)}
    of_text = getattr(config, "text_config", config)
    size = getattr(of_text, "vocab_size", _CANDIDATES)
    count = min(_ENOUGH, limit_of(model, None) or _ENOUGH)
    ids = torch.randint(min(5, size - 1), size, (count,), generator=generator)
    return {"input_ids": ids}
