"""aw.sae_features: the SAE features of a traced text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._gradients import no_grad
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack
from attnwidgets.sae.check import hook_point_of, require_width
from attnwidgets.sae.feature_activations import FeatureActivations
from attnwidgets.sae.sae import SAE, as_sae
from attnwidgets.tracing.anatomy.block_names import block_names
from attnwidgets.tracing.anatomy.forward import can_generate, forward_parameters
from attnwidgets.tracing.hooks.hook import reading
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnwidgets.sae.coder import Activation
    from attnwidgets.tracing.hooks.hook_point import HookPoint
    from attnwidgets.tracing.trace import Trace

PAPER = "Bricken et al. 2023, Towards Monosemanticity; Cunningham et al. 2024, ICLR"


def sae_features(
    trace: Trace,
    sae: SAE,
    *,
    activation: Activation = "raw",
    site: str | None = None,
    stack: str | None = None,
) -> FeatureActivations:
    """Which features of an SAE fire on the tokens of a text, and how strongly.

    The model is run again on the recorded input, up to the SAE's hook point, and left unchanged.

    Args:
        trace: A trace by `aw.trace`.
        sae: An SAE, or any object `aw.SAE.from_object` accepts.
        activation: "raw" for a_j; "lecture" for a_j ||W_dec[j]||.
        site: Hook point to read, instead of `sae.site`; see `attnwidgets.tracing.hooks.hook_point`.
        stack: Stack whose tokens the states belong to, in models with several; by default the one that
            contains the hook point.

    Returns:
        FeatureActivations [token, feature], special tokens included; `.error` [token] is the length of the
        reconstruction error relative to the length of the state.

    Raises:
        ValueError: If the model lacks the hook point, or its states have another width than the SAE.
        UnsupportedModelError: If the trace has no model, or the hook point does not see one state per token
            of the stack (a ValueError).
        TypeError: If `trace` is not a trace or `sae` not an SAE.

    Source: Bricken et al. 2023, Towards Monosemanticity.

    Example:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> W_enc = torch.randn(384, 64, generator=generator)
        >>> sae = aw.SAE(W_enc, W_enc.T, torch.zeros(384), torch.zeros(64), site="encoder.layer.2")
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.sae_features(trace, sae).shape
        (9, 64)
    """
    require_trace(trace, "sae_features")
    sae = as_sae(sae)
    if trace.model is None:
        raise UnsupportedModelError(
            "sae_features runs the model again, but this trace has no model; make it with "
            "aw.trace(model, tokenizer, text)."
        )
    model = unwrap(trace.model)
    hook_point = hook_point_of(sae, model, site)
    stack_name = resolve_stack(trace, stack or _stack(trace, model, hook_point))
    axis = trace.axes(stack_name)[0]
    states = states_at(trace, hook_point)
    require_width(sae, states.shape[-1], hook_point, model)
    h = states.to(sae.W_enc)
    if len(h) != len(axis):
        raise UnsupportedModelError(
            f"sae_features: {hook_point.name!r} has {len(h)} states, but stack {stack_name!r} has "
            f"{len(axis)} tokens; pass the stack they belong to: {', '.join(map(repr, trace.stacks))}."
        )
    with no_grad():
        a = sae.encode(h)
        error = (h - sae.decode(a, h)).norm(dim=-1) / h.norm(dim=-1).clamp_min(torch.finfo(h.dtype).tiny)
        activations = a if activation == "raw" else sae.encode(h, activation=activation)
    # The state of a decoder's first token is an outlier; SAEs are not trained on it.
    decodes = can_generate(model) and "decoder_input_ids" not in forward_parameters(model)
    used_options: dict[str, Any] = {
        "skip_first": decodes and not next(iter(axis.units.values())).special[0],
        "sae": repr(sae),
        "site": hook_point.name,
        "layer": hook_point.block,
        "activation": activation,
    }
    common = provenance_of(trace, stack_name, "sae_features", paper=PAPER, options=used_options)
    common["provenance"] |= {"title": "SAE features" if activation == "raw" else "SAE features (lecture)"}
    return FeatureActivations(activations, axis=axis, error=error, **common)


def states_at(trace: Trace, hook_point: HookPoint) -> Tensor:
    """Return the states of a traced input at a hook point [token, width]; the model runs again, up to it."""
    model = unwrap(trace.model)
    options = {"use_cache": False} if "use_cache" in forward_parameters(model) else {}
    with borrowed(model) as twin, reading(twin, hook_point) as read:
        states = read(**{**trace.inputs, **options})
    return states.reshape(-1, states.shape[-1])


def _stack(trace: Trace, model: nn.Module, hook_point: HookPoint) -> str:
    """Return the stack whose blocks contain a hook point, or the default stack."""
    for stack, names in block_names(trace, model).items():
        blocks = names[0].rpartition(".")[0]
        if f"{hook_point.module}.".startswith(f"{blocks}."):
            return stack
    return trace.default_stack
