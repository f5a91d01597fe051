"""The relevance of neurons, or of an SAE's features, at a hook point: LRP inside the model.

Achtibat et al. 2024, AttnLRP, section 4.3 (neurons); rules as in `aw.lrp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import require_choice
from attnwidgets._gradients import enable_grad, no_grad
from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack
from attnwidgets.explanations.attribution.lrp import PAPERS, TITLES, require_conservation
from attnwidgets.explanations.registry.documentation import documented
from attnwidgets.explanations.results.description import TARGETS
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import resolve_target_set
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


@documented
def neuron_relevance(
    trace: Trace,
    site: str,
    target: Any = None,
    foil: Any = None,
    *,
    sae: Any = None,
    top: int | None = 50,
    rule: Literal["attnlrp", "cp_lrp"] = "attnlrp",
    bias: Literal["absorb", "ignore"] = "absorb",
    stack: str | None = None,
    precision: Literal["float32", "model"] = "float32",
    force: bool = False,
) -> MixingMap:
    """How much every neuron at a hook point, or every SAE feature there, speaks for a target, token by token.

    A neuron's relevance is its value times its gradient under the rules; a feature's is its activation times
    that gradient along the feature's direction. The part that the SAE does not reconstruct, and its bias,
    belong to no feature: `provenance["conservation"]` has them as "unexplained".

    Args:
        trace: Trace returned by `aw.trace`, or `aw.trace_module`.
        site: The hook point: a hook's name ("blocks.3.mlp.hook_post", "blocks.5.hook_resid_post") or the path
            of a module, with ".input" for its input.
        target: {target} A single target only.
        foil: {foil}
        sae: An `aw.SAE`, whose features are shown instead of neurons; anything with `encode(h)` and
            `decode(a, h)`.
        top: How many to keep, those with the largest sums by absolute value; None for all.
        rule: As in `aw.lrp`.
        bias: As in `aw.lrp`.
        stack: "encoder" or "decoder": the stack whose tokens pass the hook point.
        precision: As in `aw.lrp`.
        force: As in `aw.lrp`.

    Returns:
        A map [1, neuron, token], most relevant first; `.query_labels` are "neuron 12" or "feature 12". By
        word, it sums over a word's tokens. Signed, in units of the target. [1, neuron, 1] for a module that
        reads no tokens.

    Raises:
        ValueError: As for `aw.lrp`; also if the hook point does not exist or has other tokens, or for `top`
            below 1.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> aw.neuron_relevance(trace, "blocks.1.mlp.hook_post", top=5).shape == (1, 5, len(trace.tokens))
        True
    """
    import torch

    from attnwidgets.relevance.rules import propagate
    from attnwidgets.tracing.hooks.hook_point import resolve_hook_point
    from attnwidgets.tracing.recording.borrow import unwrap

    require_choice("rule", rule, tuple(PAPERS))
    require_choice("bias", bias, ("absorb", "ignore"))
    require_choice("precision", precision, ("float32", "model"))
    if top is not None and top < 1:
        raise ValueError(f"top must be at least 1, or None for all, not {top}.")
    targets = resolve_target_set(trace, target, foil, "neuron_relevance").single("neuron_relevance")
    stack = embedding_stack(trace, stack)
    hook_point = resolve_hook_point(unwrap(trace.model), site)
    verdict = require_conservation(trace, "neuron_relevance", force=force)
    propagated = propagate(
        trace,
        targets.scores,
        "neuron_relevance",
        rule=rule,
        bias=bias,
        entry=stack,
        hook_points=[hook_point],
        reads=targets.reads,
        precision=precision,
        insist=force,
    )
    values, gradients = propagated.values[hook_point.name], propagated.gradients[hook_point.name][0]
    axis = trace.axes(stack)[0]
    if values.dim() == 1:
        # A layer of a module that reads no tokens.
        values, gradients, axis = values[None], gradients[None], TokenAxis.plain(["all inputs"])
    if values.dim() != len(("token", "width")) or len(values) != len(axis):
        raise ValueError(
            f"site {site!r} has values {list(values.shape)}, not [{len(axis)} tokens of stack {stack!r}, "
            "width]; name another site, or another stack."
        )
    kind = "neuron" if sae is None else "feature"
    relevance = values * gradients if sae is None else _feature_relevance(sae, values, gradients)
    totals = relevance.double().sum(0)
    best = totals.abs().argsort(descending=True, stable=True)[:top]
    options = {"site": site, "rule": rule, "bias": bias, "top": top, "precision": precision, "force": force}
    whole = float((values.double() * gradients.double()).sum())
    conservation = {
        "target": propagated.scores.double().tolist(),
        "site": whole,
        "unexplained": whole - float(totals.sum()),
        "shown": float(totals[best].sum()),
        "verdict": "" if verdict is None else verdict.sentence,
    }
    names = targets.names()
    contrast = "" if names["foil"] is None else f" rather than {names['foil']}"
    common = provenance_of(
        trace,
        stack,
        "neuron_relevance",
        title=f"{TITLES[rule]} of {kind}s at {site} for {names['target']}{contrast}",
        paper=PAPERS[rule],
        options=options,
        notes=[*targets.notes, "" if verdict is None or verdict else verdict.sentence],
        facts={"conservation": conservation, "axes": TARGETS},
    )
    unit = next(iter(axis.units))
    return MixingMap(
        torch.index_select(relevance, 1, best).T[None].double().numpy(),
        query=TokenAxis.plain([f"{kind} {index}" for index in best.tolist()], name=unit),
        key=axis,
        layers=[hook_point.block or 0],
        unit=unit,
        causal=False,
        stochastic=False,
        signed=True,
        **common,
    )


def _feature_relevance(sae: Any, values: Tensor, gradients: Tensor) -> Tensor:
    """Return the relevance of features [token, feature]: activations times directional gradients."""
    import torch

    with no_grad():
        activations = sae.encode(values)
    leaf = activations.detach().requires_grad_()
    with enable_grad():
        # The scale of a normalised state is a constant, as a norm's is.
        reconstruction = sae.decode(leaf, values.to(leaf))
        (along,) = torch.autograd.grad((reconstruction * gradients.to(reconstruction)).sum(), leaf)
    return (activations * along).cpu()
