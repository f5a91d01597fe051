"""What a prediction loses without each head: exactly, and by the gradient's first-order estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets._selecting import listed
from attnwidgets.evaluate.metrics.rank_measures import spearman
from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.statistics.statistic import Statistic, known
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

REMOVAL = known(
    Statistic(
        "removal",
        "loss without it",
        "What the target loses when what the head writes is set to zero.",
        "signed, in units of the target (a logit)",
        "the prediction needs the head",
        PAPER,
    )
)
FIRST_ORDER = known(
    Statistic(
        "removal_estimate",
        "loss without it (estimate)",
        "What the target would lose if it were linear in the head: what it writes times the gradient there.",
        "signed, in units of the target (a logit)",
        "the prediction leans on the head",
        PAPER,
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
    """Return what a target loses without each head, as a layer x head table.

        removal             f(x) - f(x without the head), one pass from its layer on for each head
        removal_estimate    sum over tokens of (what the head writes) . (df / d of that), one pass back

    The estimate is exact where f is linear in what the head writes. How far the two agree over all heads
    (Spearman's rank correlation of their sizes) is in `.provenance["agreement"]` and in the title.

    Args:
        traces: What `aw.trace` returned, or a list of such traces of one model: then the mean over them.
        target: As every method takes it; by default what the model predicts for each.
        how: "exact", "first_order", or "both".
        magnitude: Whether each text's numbers are taken without their signs before the mean, as in the paper.
        stack: Which attention, where there are several ("encoder", "decoder", "cross").
        batch_size: Heads that are removed side by side, each in its own copy of the text.

    Returns:
        HeadStatistics of "removal" and "removal_estimate" [layer, head]; signed unless `magnitude`.

    Raises:
        ValueError: For an unknown `how` or stack; where the target must be named; where a trace was recorded
            under other interventions than are in force, or gradients cannot be had.
        TypeError: Where `traces` are none.

    Source: Michel et al. 2019, section 2.2 (removal) and 4.1 (estimate).
    """
    if how not in HOWS:
        raise ValueError(f"how {how!r} is not one of {listed(HOWS)}.{suggest(str(how), HOWS)}")
    from attnwidgets.tracing.attention_modules import sites

    several: list[Trace] = list(traces) if isinstance(traces, (list, tuple)) else [traces]
    if not several:
        raise ValueError("traces is empty: give a trace, or several.")
    for trace in several:
        require_trace(trace, "head_importance")
        sites(trace)
    name = resolve_stack(several[0], stack)
    names = [NAMES[one] for one in NAMES if how in (one, "both")]
    found = []
    for trace in progress(several, "removing heads") if len(several) > 1 else several:
        meant = resolve_target(trace, target, method="head_importance")
        tables = []
        if "removal" in names:
            tables.append(_exact(trace, meant, name, batch_size, watched=len(several) == 1))
        if "removal_estimate" in names:
            tables.append(_estimate(trace, meant, name))
        found.append(np.abs(tables) if magnitude else np.array(tables))
    values: Float = np.mean(found, axis=0)
    first = several[0]
    agreement = _agreement(values) if how == "both" else None
    title = "head importance"
    if agreement is not None:
        title += f" (rank correlation of removal and estimate {agreement:.2f})"
    return HeadStatistics(
        values,
        names=names,
        layers=range(first.n_layers(name)),
        heads=range(first.n_heads(name)),
        method="head_importance",
        stack=name,
        trace_id=first.id,
        warning=first.warning,
        provenance={
            "title": title,
            "model": first.model_id,
            "text": first.text if len(several) == 1 else f"{len(several)} texts",
            "paper": PAPER,
            "agreement": agreement,
            "options": {"how": how, "magnitude": magnitude},
            "steps": [],
        },
    )


def _agreement(values: Float) -> float:
    """Return the rank correlation of the sizes of two tables [2, layer, head]; NaN where one is constant."""
    sizes = np.abs(values).reshape(_TWO, -1)
    sizes = sizes[:, ~np.isnan(sizes).any(axis=0)]
    constant = sizes.shape[1] < _TWO or bool((sizes == sizes[:, :1]).all(axis=1).any())
    return float("nan") if constant else spearman(sizes[0], sizes[1])


def _exact(trace: Trace, target: Target, stack: str, batch_size: int, *, watched: bool) -> Float:
    """Return what the target loses without each head [layer, head]; NaN for heads a layer does not have."""
    from attnwidgets.intervene.preview import Replay
    from attnwidgets.tracing.interventions import Intervention

    class Each(Intervention):
        """Every copy of a text without another head."""

        def __init__(self, layer: int, heads: range) -> None:
            super().__init__(trace, "ablate_heads", "each head alone", frozenset([(stack, layer)]))
            self.heads = heads

        def write(self, seen: Seen, output: Tensor) -> Tensor:  # noqa: ARG002 - one layer
            output = output.clone()
            for copy, head in enumerate(self.heads):
                output[copy, head] = 0
            return output

    found = np.full((trace.n_layers(stack), trace.n_heads(stack)), np.nan)
    layers = range(len(found))
    with Replay(trace) as replay:
        whole = float(target.score(replay.run(target=target)).double()[0])
        for layer in progress(layers, "removing heads") if watched else layers:
            count = trace.n_heads(stack, layer)
            for start in range(0, count, batch_size):
                heads = range(start, min(count, start + batch_size))
                outputs = replay.run((Each(layer, heads),), copies=len(heads), target=target)
                found[layer, heads.start : heads.stop] = whole - target.score(outputs).double().cpu().numpy()
    return found


def _estimate(trace: Trace, target: Target, stack: str) -> Float:
    """Return the first-order estimate [layer, head]; NaN for heads a layer does not have."""
    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients

    found = np.full((trace.n_layers(stack), trace.n_heads(stack)), np.nan)
    with differentiable(trace, "head_importance") as run:
        graph = run(keep=("heads",), hidden_states=target.hidden_states)
        heads = graph.heads[stack]
        slopes = gradients(target.score(graph.outputs), heads)
    for layer, (output, slope) in enumerate(zip(heads, slopes, strict=True)):
        sums = (output.detach() * slope).double().sum(dim=(0, 2, 3))
        found[layer, : len(sums)] = sums.cpu().numpy()
    return found
