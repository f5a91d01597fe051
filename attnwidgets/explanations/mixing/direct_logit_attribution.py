"""Direct logit attribution: what every component of a model adds to a logit.

Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, equation 5; Elhage et al.
2021, A Mathematical Framework for Transformer Circuits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.logit_targets import layer_map, logit_result, wanted_logits
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
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
    """What every component adds to a logit by itself: every layer's attention or heads, MLP and biases.

    A logit is the sum of what was added to the residual stream, each through the final norm (with the real
    state's deviation) and the token's column of the unembedding. What a component does through later layers
    is theirs. See `aw.alti_logit` for the algebra and what it takes as linear.

    Args:
        trace: What `aw.trace` returned, of a model with a head.
        target: The logit: a token by its string or id, a class, `aw.targets.token(token, position=...)`; by
            default what the model predicts. A list of them gives [target, component].
        foil: A token or class that the target is contrasted with: the attributions of target - foil.
        by: "layer" gives every layer's attention as one component, "head" its heads one by one.
        stack: The stack that the head reads, where there are several.

    Returns:
        Attributions [component] (or [target, component]) in logits, signed: "initial" (the embedding that the
        first block reads), then for every layer "attention 0" or "head 0.1", "bias 0" (of attention's output,
        and of norms in post-norm blocks) where there is one, "mlp 0", and "final bias" (of the final norm and
        the head) where there is one. They sum to the logit; `.residual` is what rounding leaves.
        `.map` has what every head reads of every token's state at its layer [layer, head, target, source].

    Raises:
        ValueError, IndexError, TypeError: see `aw.alti_logit`.
    """
    require_choice("by", by, ("layer", "head"))
    wanted = wanted_logits(
        trace, target, foil, method="direct_logit_attribution", stack=stack, value_bias=False
    )
    table = _components(wanted.parts, by)
    values = np.stack(list(table.values()), axis=-1)
    rest = np.asarray(wanted.scores) - values.sum(-1)
    common = logit_result(
        trace,
        wanted,
        "direct_logit_attribution",
        title="direct logit attribution",
        paper=PAPER,
        options={"by": by},
    )
    heads = wanted.parts.attention.numpy()
    made = layer_map(
        wanted,
        lambda number: heads[:, number].transpose(1, 0, 2),
        trace.axes(wanted.stack)[1],
        common,
        layers=range(heads.shape[1]),
        heads=range(heads.shape[2]),
    )
    return Attributions(
        values if wanted.several else values[0],
        axis=TokenAxis.plain(tuple(table), name="component"),
        target=wanted.labels,
        foil=None if wanted.foil is None else wanted.foil.label,
        residual=rest.tolist() if wanted.several else float(rest[0]),
        map=made,
        unit="component",
        **common,
    )


def _components(parts: LogitParts, by: str) -> dict[str, Any]:
    """Return what every component adds [target], by its name."""
    table = {"initial": parts.initial.sum(-1).numpy()}
    heads = parts.attention.sum(-1).numpy()
    bias = (parts.output_bias + parts.norm_bias).numpy()
    for layer in range(heads.shape[1]):
        if by == "head":
            table |= {f"head {layer}.{head}": heads[:, layer, head] for head in range(heads.shape[2])}
        else:
            table[f"attention {layer}"] = heads[:, layer].sum(-1)
        if bias[:, layer].any():
            table[f"bias {layer}"] = bias[:, layer]
        table[f"mlp {layer}"] = parts.mlp[:, layer].numpy()
    if parts.final_bias.any():
        table["final bias"] = parts.final_bias.numpy()
    return table
