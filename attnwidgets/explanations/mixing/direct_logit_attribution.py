"""Direct logit attribution: the direct contribution of each component of a model to a logit.

Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, equation 5; Elhage et al.
2021, A Mathematical Framework for Transformer Circuits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.logit_targets import decompose_logits, layer_map, logit_result
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from collections.abc import Collection

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.algebra.logit_parts import LogitParts

PAPER = (
    "Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions; "
    "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits"
)


def direct_logit_attribution(
    trace: TraceLike,
    target: Any = None,
    foil: Any = None,
    *,
    by: Literal["layer", "head"] = "layer",
    stack: str | None = None,
) -> Attributions:
    """The direct contribution of each component to a logit: attention or heads, MLP and biases of all layers.

    A logit is the sum of all terms added to the residual stream, each passed through the final norm (with the
    real state's deviation) and the token's column of the unembedding. Effects of a component through later
    layers count for these layers. See `aw.alti_logit` for the algebra and its linear approximations. State
    spaces, delta rules and convolutions are components as attention is: with their gates and norms
    fixed, their output is a sum over tokens, exactly (`aw.mixing`).

    Args:
        trace: A trace made by `aw.trace`, of a model with a head.
        target: The logit: a token by string or id, a class, or `aw.targets.token(token, position=...)`; by
            default the model's prediction. A list of them gives [target, component].
        foil: A token or class to contrast the target with, for the contributions to target - foil.
        by: "layer" makes each layer's attention a component, "head" each of its heads.
        stack: Stack that the head reads, if the model has several.

    Returns:
        Attributions [component] (or [target, component]) in logits, signed: "initial" (the input of the first
        block), then for each layer "attention 0" ("mixing 0" if it mixes tokens by something else, too) or
        "head 0.1", "bias 0" (of the layer's mixers, and of norms in post-norm blocks) if not
        zero, "mlp 0" if any, and "final bias" (of the final norm and the head) if not zero. They sum
        to the logit up to rounding, which is `.residual`. `.map` holds the contributions of each head and the
        tokens it reads [layer, head, target, source].

    Raises:
        ValueError: For an unknown option; if the model has no head, or a target is not a single logit (a
            string of several tokens) or equals its foil; as `UnsupportedModelError`, if no description fits
            the head, or a block's output is not a known sum (the message says why).
        IndexError: If the token or position is out of range.
        TypeError: If `target` or `foil` cannot name a logit.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A great film.")
        >>> parts = aw.direct_logit_attribution(trace)
        >>> parts.labels[parts.values.argmax()]
        'attention 5'
    """
    require_choice("by", by, ("layer", "head"))
    logits = decompose_logits(
        trace, target, foil, method="direct_logit_attribution", stack=stack, value_bias=False
    )
    mixing: Any = getattr(trace, "stack_table", {})[logits.stack].mixing
    table = _components(logits.parts, by, mixing)
    common = logit_result(
        trace,
        logits,
        "direct_logit_attribution",
        title="direct logit attribution",
        paper=PAPER,
        options={"by": by},
    )
    heads = logits.parts.attention.numpy()
    by_head = layer_map(
        logits,
        lambda number: heads[:, number, : logits.parts.heads[number]].transpose(1, 0, 2),
        trace.axes(logits.stack)[1],
        common,
        layers=range(heads.shape[1]),
        heads=range(heads.shape[2]),
    )
    return logits.attributions(
        np.stack(list(table.values()), axis=-1),
        axis=TokenAxis.plain(tuple(table), name="component"),
        map=by_head,
        unit="component",
        **common,
    )


def _components(parts: LogitParts, by: str, mixing: Collection[int]) -> dict[str, Any]:
    """Return the contribution of each component [target], by name.

    `mixing` are the layers that mix tokens by more than attention.
    """
    table = {"initial": parts.initial.sum(-1).numpy()}
    heads = parts.attention.sum(-1).numpy()
    bias = (parts.output_bias + parts.norm_bias).numpy()
    for layer in range(heads.shape[1]):
        if by == "head":
            table |= {f"head {layer}.{head}": heads[:, layer, head] for head in range(parts.heads[layer])}
        else:
            table[f"{'mixing' if layer in mixing else 'attention'} {layer}"] = heads[:, layer].sum(-1)
        if bias[:, layer].any():
            table[f"bias {layer}"] = bias[:, layer]
        if layer not in mixing or parts.mlp[:, layer].any():
            table[f"mlp {layer}"] = parts.mlp[:, layer].numpy()
    if parts.final_bias.any():
        table["final bias"] = parts.final_bias.numpy()
    return table
