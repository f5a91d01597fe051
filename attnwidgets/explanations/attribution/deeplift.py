"""DeepLIFT: contributions of tokens to the difference between a target here and on a baseline.

Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.explanations.attribution.baselines import baseline_embeddings
from attnwidgets.explanations.attribution.embedding_gradients import (
    embedding_stack,
    leaf_of,
    target_attributions,
)
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.targets.target_set import TargetSet
    from attnwidgets.relevance.rescale import Differences
    from attnwidgets.tracing.gradients.differentiable import Graph, Runner
    from attnwidgets.tracing.trace import Trace

PAPER = "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences"

# Share of the change from the baseline that the sum may miss before the result warns of it.
_LARGE_GAP = 0.01


@method(
    "deeplift",
    question="For this prediction",
    gist="which words make the difference to an empty text",
    paper=PAPER,
    needs=("embeddings", "target", "own tokens"),
    returns="Attributions [source], with what is missed as residual",
    cost="two passes forward, and one back for every target",
    speed="seconds",
)
def deeplift(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    baseline: Any = None,
    unit: str | None = None,
    stack: str | None = None,
    force: bool = False,
) -> Attributions:
    """The contribution of every token to the difference between the target here and on a baseline.

    The model runs on the baseline, then on the input. Every operation distributes the whole difference of its
    output among its inputs: a linear one by its weights; a function of one number by the quotient of the two
    differences (the rescale rule); a product by each factor's difference times the other's mean; a norm and a
    softmax by the rules of the operations that they consist of. So the sum over tokens is f(x) - f(baseline),
    without the many steps that Integrated Gradients needs; `residual` is the error of rounding.

    Operations are recognised while the model runs, as for `aw.lrp`; those without a rule (such as the choice
    of experts) are refused by name.

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        baseline: {baseline}
        unit: {unit}
        stack: {stack} The other stack's embeddings stay as they are.
        force: Whether an operation without a rule passes on its plain gradient; the sum then misses a part.

    Returns:
        Attributions [source], or [target, source], signed, in units of the target. `.residual` is
        f(x) - f(baseline) less their sum. `.provenance["change"]` holds f(x) - f(baseline).

    Raises:
        UnsupportedModelError: If an operation has no rule, or the model runs other operations on the baseline
            (a ValueError; the message names the operation).
        ValueError: For an unknown option or baseline; if the target must be named; if gradients are NaN or
            all zero (the message names the layer) or unavailable; if a text is too long for the available
            memory.
        TypeError, IndexError: {no_target}

    Source: Shrikumar et al. 2017, section 3. The rules of products, norms and the softmax are ours; see
    docs/relevance.md.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> scores = aw.deeplift(trace)
        >>> bool(np.isclose(scores.values.sum(), scores.provenance["change"], rtol=1e-4))
        True
    """
    targets = resolve_target_set(trace, target, foil, "deeplift")
    stack = embedding_stack(trace, stack)
    import torch

    from attnwidgets.relevance.deeplift import differences, rescaled_activations
    from attnwidgets.tracing.gradients.differentiable import diagnosis, differentiable, gradients, usable
    from attnwidgets.tracing.pass_memory import room_for_pass

    rows, sums = [], []
    with (
        differentiable(trace, "deeplift", entry=stack) as run,
        room_for_pass(run.model, trace, "deeplift", 2),
    ):
        with no_grad():
            embeddings = leaf_of(run(reads=targets.reads), stack, "deeplift", trace).detach()
        start, baseline = baseline_embeddings(trace, run.model, embeddings[0], baseline, "deeplift")
        rules = differences(insist=force)
        with rescaled_activations(run.model, rules):
            before = [score.detach() for score in _scores(run, targets, {stack: start[None]}, rules)[1]]
            rules.compare()
            graph, scores = _scores(run, targets, {stack: embeddings}, rules)
        leaf = leaf_of(graph, stack, "deeplift", trace)
        for score in scores:
            multipliers = gradients(score, [leaf], again=True)[0]
            if not usable([multipliers], graph):
                raise ValueError(diagnosis(score, graph, stack, "deeplift"))
            contributions = (multipliers.double() * (embeddings - start).double())[0].sum(-1).cpu()
            rows.append(contributions)
            sums.append(contributions.sum())
        change = torch.stack(
            [(score.detach() - first).double().sum() for score, first in zip(scores, before, strict=True)]
        ).cpu()
    gap = change - torch.stack(sums)
    common = provenance_of(
        trace,
        stack,
        "deeplift",
        title=f"DeepLIFT from {baseline}",
        paper=PAPER,
        options={"baseline": baseline, "force": force},
        notes=(*targets.notes, _gap_note(gap, change)),
        facts={"change": targets.of(change.tolist())},
    )
    residual = targets.of(gap.tolist())
    return target_attributions(trace, stack, torch.stack(rows), targets, common, unit=unit, residual=residual)


def _scores(
    run: Runner, targets: TargetSet, embeddings: dict[str, Tensor], rules: Differences
) -> tuple[Graph, list[Tensor]]:
    """Return a pass and its scores, both under the rules: a target is the last operation."""
    graph = run(embeddings, reads=targets.reads, during=lambda: rules)
    with rules:
        return graph, targets.scores(graph.outputs)


def _gap_note(gap: Tensor, change: Tensor) -> str:
    """Return a warning about the gaps of sums [target], or "" if they are small."""
    excess = gap.abs() - _LARGE_GAP * change.abs()
    worst = int(excess.argmax())
    if float(excess[worst]) <= 0:
        return ""
    return (
        f"the contributions miss the change from the baseline ({float(change[worst]):.3g}) by "
        f"{float(gap[worst]):.2g}: an operation passed on less than its difference, or rounding grew where "
        "the baseline is almost nothing (zero embeddings before a norm); try another baseline"
    )
