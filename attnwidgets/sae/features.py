"""aw.sae_features: encode the states that a traced text has at an SAE's site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack
from attnwidgets.sae.check import require_width, site_of
from attnwidgets.sae.feature_activations import FeatureActivations
from attnwidgets.sae.sae import SAE, as_sae
from attnwidgets.tracing.block_names import block_names
from attnwidgets.tracing.hooks.hook import reading
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import can_generate, forward_parameters

if TYPE_CHECKING:
    from torch import nn

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
    """Which features of an SAE fire on the tokens of a text, and how much.

    The model is run again on the recorded input, up to the SAE's site; it comes back as it was.

    Args:
        trace: What `aw.trace` returned.
        sae: Anything `aw.SAE.from_object` takes.
        activation: "raw" for a_j; "lecture" for a_j ||W_dec[j]||.
        site: Where the states are, instead of `sae.site`; see `attnwidgets.tracing.hooks.hook_point`.
        stack: Whose tokens they are, in models with several; by default the one whose blocks the site is in.

    Returns:
        FeatureActivations [token, feature], special tokens included, with the share of every state's length
        that the SAE misses (`.error`).

    Raises:
        ValueError: Where the site is not in the model, or its states are not as wide as the SAE reads them;
            both are named.
        UnsupportedModelError: If the trace has no model, or the site's states are not those of its tokens (a
            ValueError).
        TypeError: Where `trace` is no trace or `sae` no SAE.

    Source: Bricken et al. 2023, Towards Monosemanticity.
    """
    require_trace(trace, "sae_features")
    sae = as_sae(sae)
    if trace.model is None:
        raise UnsupportedModelError(
            "sae_features runs the model again, and this trace has none; make it with "
            "aw.trace(model, tokenizer, text)."
        )
    model = unwrap(trace.model)
    place = site_of(sae, model, site)
    name = resolve_stack(trace, stack or _stack(trace, model, place))
    axis = trace.axes(name)[0]
    options = {"use_cache": False} if "use_cache" in forward_parameters(model) else {}
    with borrowed(model) as twin, reading(twin, place) as read:
        states = read(**{**trace.inputs, **options})
    require_width(sae, states.shape[-1], place, model)
    h = states.reshape(-1, states.shape[-1]).to(sae.W_enc)
    if len(h) != len(axis):
        raise UnsupportedModelError(
            f"sae_features: {place.name!r} has {len(h)} states, and stack {name!r} has {len(axis)} tokens; "
            f"name the stack they belong to, one of {', '.join(map(repr, trace.stacks))}."
        )
    with torch.no_grad():
        a = sae.encode(h)
        error = (h - sae.decode(a, h)).norm(dim=-1) / h.norm(dim=-1).clamp_min(torch.finfo(h.dtype).tiny)
        found = a if activation == "raw" else sae.encode(h, activation=activation)
    # A decoder's first token has a state of its own kind, on which no SAE is trained.
    decodes = can_generate(model) and "decoder_input_ids" not in forward_parameters(model)
    asked: dict[str, Any] = {
        "skip_first": decodes and not next(iter(axis.units.values())).special[0],
        "sae": repr(sae),
        "site": place.name,
        "layer": place.block,
        "activation": activation,
    }
    common = provenance_of(trace, name, "sae_features", paper=PAPER, options=asked)
    common["provenance"] |= {"title": "SAE features" if activation == "raw" else "SAE features (lecture)"}
    return FeatureActivations(found, axis=axis, error=error, **common)


def _stack(trace: Trace, model: nn.Module, site: HookPoint) -> str:
    """Return the stack in whose blocks a site is; the default one where it is in none."""
    for stack, names in block_names(trace, model).items():
        blocks = names[0].rpartition(".")[0]
        if f"{site.module}.".startswith(f"{blocks}."):
            return stack
    return trace.default_stack
