"""The relevance of neurons, or of an SAE's features, at one place in a model: LRP seen inside it.

Achtibat et al. 2024, AttnLRP, section 4.3 (neurons); rules as in `aw.lrp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack
from attnwidgets.explanations.attribution.lrp import PAPERS, TITLES, trusted
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import asked
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


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
    """How much every neuron at a site, or every feature of an SAE there, speaks for a target, token by token.

    A neuron's relevance is its value times the gradient that the rules make at it; a feature's is its
    activation times that gradient along the feature's direction. What the SAE does not reconstruct, and its
    bias, is no feature's: `provenance["conservation"]` has it as "unexplained".

    Args:
        trace: What `aw.trace` returned, or `aw.trace_module`.
        site: Where: a hook ("blocks.3.mlp.hook_post", "blocks.5.hook_resid_post") or a module by its path,
            with ".input" for what it is given.
        target: As in `aw.lrp`; one.
        foil: As in `aw.lrp`.
        sae: An `aw.SAE`, whose features are shown instead of neurons; anything with `encode(h)` and
            `decode(a, h)`.
        top: How many are kept, those with the largest sums by absolute value; None for all.
        rule: As in `aw.lrp`.
        bias: As in `aw.lrp`.
        stack: "encoder" or "decoder": whose tokens pass the site.
        precision: As in `aw.lrp`.
        force: As in `aw.lrp`.

    Returns:
        A map [1, neuron, token], most relevant first; `.query_labels` are "neuron 12" or "feature 12". Read
        by word, it sums over a word's tokens. Signed, in units of the target. [1, neuron, 1] of a module that
        reads no tokens.

    Raises:
        ValueError: As `aw.lrp`; for a site that is not there or has other tokens, or `top` below 1.
    """
    import torch

    from attnwidgets.relevance.propagate import propagate
    from attnwidgets.tracing.hooks.hook_point import resolve_hook_point
    from attnwidgets.tracing.recording.borrow import unwrap

    require_choice("rule", rule, tuple(PAPERS))
    require_choice("bias", bias, ("absorb", "ignore"))
    require_choice("precision", precision, ("float32", "model"))
    if top is not None and top < 1:
        raise ValueError(f"top must be at least 1, or None for all, not {top}.")
    question = asked(trace, target, foil, "neuron_relevance").single("neuron_relevance")
    stack = embedding_stack(trace, stack)
    place = resolve_hook_point(unwrap(trace.model), site)
    verdict = trusted(trace, "neuron_relevance", force=force)
    found = propagate(
        trace,
        question.scores,
        "neuron_relevance",
        rule=rule,
        bias=bias,
        hook_points=[place],
        hidden_states=question.hidden_states,
        precision=precision,
        insist=force,
    )
    values, gradients = found.values[place.name], found.gradients[place.name][0]
    axis = trace.axes(stack)[0]
    if values.dim() == 1:
        # A layer of a module that reads no tokens.
        values, gradients, axis = values[None], gradients[None], TokenAxis.plain(["all inputs"])
    if values.dim() != len(("token", "width")) or len(values) != len(axis):
        raise ValueError(
            f"site {site!r}: what passes it is {list(values.shape)}, not [{len(axis)} tokens of stack "
            f"{stack!r}, width]; name another site, or another stack."
        )
    kind = "neuron" if sae is None else "feature"
    relevance = values * gradients if sae is None else _features(sae, values, gradients)
    totals = relevance.double().sum(0)
    best = totals.abs().argsort(descending=True, stable=True)[:top]
    options = {"site": site, "rule": rule, "bias": bias, "top": top, "precision": precision, "force": force}
    notes = [*question.notes, "" if verdict is None or verdict else verdict.sentence]
    common = provenance_of(trace, stack, "neuron_relevance", paper=PAPERS[rule], options=options, notes=notes)
    whole = float((values.double() * gradients.double()).sum())
    shown = question.names()
    against = "" if shown["foil"] is None else f" rather than {shown['foil']}"
    common["provenance"] |= {
        "title": f"{TITLES[rule]} of {kind}s at {site} for {shown['target']}{against}",
        "conservation": {
            "target": found.scores.double().tolist(),
            "site": whole,
            "unexplained": whole - float(totals.sum()),
            "shown": float(totals[best].sum()),
            "verdict": "" if verdict is None else verdict.sentence,
        },
    }
    unit = next(iter(axis.units))
    rows = TokenAxis.plain([f"{kind} {index}" for index in best.tolist()], name=unit)
    table = torch.index_select(relevance, 1, best).T
    return MixingMap(
        table[None].double().numpy(),
        query=rows,
        key=axis,
        layers=[place.block or 0],
        unit=unit,
        causal=False,
        stochastic=False,
        signed=True,
        **common,
    )


def _features(sae: Any, values: Tensor, gradients: Tensor) -> Tensor:
    """Return the relevance of features, [token, feature]: activations times the gradient along directions."""
    import torch

    with torch.no_grad():
        activations = sae.encode(values)
    leaf = activations.detach().requires_grad_()
    with torch.enable_grad():
        # The scale of a normalised state is a constant, as a norm's is.
        reconstruction = sae.decode(leaf, values.to(leaf))
        (along,) = torch.autograd.grad((reconstruction * gradients.to(reconstruction)).sum(), leaf)
    return (activations * along).cpu()
