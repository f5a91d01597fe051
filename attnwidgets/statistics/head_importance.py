"""Head importance: the fall of a target without each head, exactly and by a first-order estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets.evaluate.metrics.ranking import spearman
from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.statistics.statistic import Statistic, register
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.interventions import Seen
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

How = Literal["both", "exact", "first_order"]
HOWS: tuple[How, ...] = ("both", "exact", "first_order")
PAPER = "Michel et al. 2019, Are Sixteen Heads Really Better than One?"
NAMES = {"exact": "removal", "first_order": "removal_estimate"}
_TWO = 2

REMOVAL = register(
    Statistic(
        "removal",
        "loss without it",
        "What the target loses when the head's output is set to zero.",
        "signed, in units of the target (a logit)",
        "the prediction needs the head",
        PAPER,
        made_by="aw.statistics.head_importance(traces)",
    )
)
FIRST_ORDER = register(
    Statistic(
        "removal_estimate",
        "loss without it (estimate)",
        "What the target would lose if it were linear in the head's output: output times gradient.",
        "signed, in units of the target (a logit)",
        "the prediction relies on the head",
        PAPER,
        made_by="aw.statistics.head_importance(traces)",
    )
)


def head_importance(
    traces: Any,
    target: Any = None,
    *,
    how: How = "both",
    magnitude: bool = False,
    stack: str | None = None,
    batch_size: int = 32,
) -> HeadStatistics:
    """Return the fall of a target without each head, as a layer x head table.

        removal             f(x) - f(x without the head), one pass from its layer on for each head
        removal_estimate    sum over tokens of (the head's output) . (df / d output), one backward pass

    The estimate is exact if f is linear in the head's output. How far the two agree over all heads
    (Spearman's rank correlation of their sizes) is in `.provenance["agreement"]` and in the title.

    Args:
        traces: A trace by `aw.trace`, or a list of traces of one model to average over.
        target: A target as for every method; by default the model's prediction for each trace.
        how: "exact", "first_order", or "both".
        magnitude: Whether each text's numbers lose their signs before averaging, as in the paper.
        stack: Which attention, in models with several stacks ("encoder", "decoder", "cross").
        batch_size: Number of heads removed in one pass, each in its own copy of the text.

    Returns:
        HeadStatistics of "removal" and "removal_estimate" [layer, head], in units of the target (a logit),
        signed unless `magnitude`. High: the prediction needs the head. Near zero: it does not. Negative: the
        head works against it.

    Raises:
        ValueError: If `how` or the stack is unknown, the target must be named, a trace was recorded under
            other interventions than are active now, or gradients are not available.
        TypeError: If `traces` are not traces.

    Source: Michel et al. 2019, section 2.2 (removal) and 4.1 (estimate).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A moving and very funny film.")
        >>> importance = aw.statistics.head_importance(trace)
        >>> importance["removal"].shape == importance["removal_estimate"].shape
        True
    """
    require_choice("how", how, HOWS)
    from attnwidgets.tracing.anatomy.attention_modules import sites

    trace_list: list[Trace] = list(traces) if isinstance(traces, (list, tuple)) else [traces]
    if not trace_list:
        raise ValueError("traces is empty: pass a trace, or several.")
    for trace in trace_list:
        require_trace(trace, "statistics.head_importance")
        sites(trace)
    stack = resolve_stack(trace_list[0], stack)
    names = [name for kind, name in NAMES.items() if how in (kind, "both")]
    by_text = []
    for trace in progress(trace_list, "removing heads") if len(trace_list) > 1 else trace_list:
        resolved = resolve_target(trace, target, method="head_importance")
        tables = []
        if "removal" in names:
            tables.append(_exact(trace, resolved, stack, batch_size, watched=len(trace_list) == 1))
        if "removal_estimate" in names:
            tables.append(_estimate(trace, resolved, stack))
        by_text.append(np.abs(tables) if magnitude else np.array(tables))
    values: Float = np.mean(by_text, axis=0)
    first = trace_list[0]
    agreement = _agreement(values) if how == "both" else None
    title = "head importance"
    if agreement is not None:
        title += f" (rank correlation of removal and estimate {agreement:.2f})"
    return HeadStatistics(
        values,
        names=names,
        layers=first.layers(stack),
        heads=range(first.n_heads(stack)),
        method="head_importance",
        stack=stack,
        trace_id=first.id,
        warning=first.warning,
        provenance={
            "title": title,
            "model": first.model_id,
            "text": first.text if len(trace_list) == 1 else f"{len(trace_list)} texts",
            "paper": PAPER,
            "agreement": agreement,
            "options": {"how": how, "magnitude": magnitude},
            "steps": [],
        },
    )


def _agreement(values: Float) -> float:
    """Return the rank correlation of the sizes of two tables [2, layer, head]; NaN if either is constant."""
    sizes = np.abs(values).reshape(_TWO, -1)
    sizes = sizes[:, ~np.isnan(sizes).any(axis=0)]
    constant = sizes.shape[1] < _TWO or bool((sizes == sizes[:, :1]).all(axis=1).any())
    return float("nan") if constant else spearman(sizes[0], sizes[1])


def _exact(trace: Trace, target: Target, stack: str, batch_size: int, *, watched: bool) -> Float:
    """Return the fall of the target without each head [layer, head]; NaN for heads a layer does not have."""
    from attnwidgets.intervene.heads import HeadIntervention
    from attnwidgets.intervene.preview import Replay

    losses = np.full((trace.n_layers(stack), trace.n_heads(stack)), np.nan)
    layers = list(enumerate(trace.layers(stack)))
    with Replay(trace) as replay:
        whole = float(target.score(replay.run(target=target)).double()[0])
        for row, layer in progress(layers, "removing heads") if watched else layers:
            count = trace.n_heads(stack, layer)
            for start in range(0, count, batch_size):
                heads = range(start, min(count, start + batch_size))
                each_head = HeadIntervention(
                    trace, "ablate_heads", "each head alone", stack, {layer: heads}, write=_one_head_zeroed
                )
                outputs = replay.run((each_head,), copies=len(heads), target=target)
                losses[row, heads.start : heads.stop] = whole - target.score(outputs).double().cpu().numpy()
    return losses


def _one_head_zeroed(_: Seen, output: Tensor, heads: list[int]) -> Tensor:
    """Set a different head's output to zero in every copy of a text [copy, head, query, dim]."""
    output = output.clone()
    output[range(len(heads)), heads] = 0
    return output


def _estimate(trace: Trace, target: Target, stack: str) -> Float:
    """Return the first-order estimate [layer, head]; NaN for heads a layer does not have."""
    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients

    losses = np.full((trace.n_layers(stack), trace.n_heads(stack)), np.nan)
    with differentiable(trace, "head_importance") as run:
        graph = run(keep=("heads",), reads=target.reads)
        heads = graph.heads[stack]
        slopes = gradients(target.score(graph.outputs), heads)
    for layer, (output, slope) in enumerate(zip(heads, slopes, strict=True)):
        sums = (output.detach() * slope).double().sum(dim=(0, 2, 3))
        losses[layer, : len(sums)] = sums.cpu().numpy()
    return losses
