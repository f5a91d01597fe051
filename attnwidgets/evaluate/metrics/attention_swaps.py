"""Whether other attention gives the same prediction: rows permuted, made uniform, or chosen adversarially.

Jain and Wallace 2019, Attention is not Explanation; Wiegreffe and Pinter 2019, Attention is not not
Explanation.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import enable_grad, no_grad
from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets._tables import Table, cells
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list
from attnwidgets.evaluate.scorecards.build import scored
from attnwidgets.explanations.results.trace_protocol import require_trace, reruns_of, resolve_stack
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from attnwidgets._tables import Columns
    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.tracing.interventions import Seen
    from attnwidgets.tracing.trace import Trace

EPSILON = 0.01
"""How far Jain and Wallace let the answer of a classifier move (0.05 for answers to questions)."""
_ONE = (
    "undefined for a model that returns a single number, or numbers without probabilities: there are no "
    "other answers to move to"
)


def total_variation(p: Any, q: Any) -> Float:
    """Return half the sum of |p - q| over the last axis, 0 to 1."""
    return np.abs(np.asarray(p, dtype=np.float64) - np.asarray(q, dtype=np.float64)).sum(axis=-1) / 2


@forceable
@documented
def attention_permutation(
    traces: Any,
    layer: Any = None,
    *,
    permutations: int = 100,
    stack: str | None = None,
    seed: int = 0,
) -> Scorecard:
    """Measure how far a prediction moves if attention's weights are permuted, or made uniform.

    Every row of all heads of the chosen layers is permuted among the tokens that it may read; "permuted" is
    the median total variation of the prediction over permutations, "uniform" that of one pass with equal
    weights. A value near 0 means that the prediction does not depend on where attention goes.

    Args:
        traces: {traces}
        layer: A layer number, several, or None for all at once.
        permutations: Number of permutations.
        stack: Which attention, if there are several: "self", "encoder", "decoder" or "cross".
        seed: {seed}
        force: {force}

    Returns:
        A Scorecard [metric "total_variation" and "flipped", "permuted" and "uniform", 1] over texts;
        "flipped" is the share of passes in which another answer is the most probable. NaN if a model returns
        a single number, and so has no other answer.

    Raises:
        ValueError: If a trace has no prediction or no model, or the stack is unknown.
        IndexError: If the layer is out of range.

    Source: Jain and Wallace 2019, section 4.2.1; Wiegreffe and Pinter 2019, section 3.2 (there with a model
    trained so: `uniform_attention`).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film.")
        >>> card = aw.evaluate.attention_permutation(trace, layer=-1, permutations=3)
        >>> card.metrics, card.methods
        (('total_variation', 'flipped'), ('permuted', 'uniform'))
    """
    traces = as_list(traces)
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, not {permutations}.")
    samples = []
    for trace in progress(traces, "permuting attention"):
        require_trace(trace, "evaluate.attention_permutation")
        name = resolve_stack(trace, stack)
        layers = _layers(trace, layer, name)
        plain = _probabilities(trace, trace.logits)
        changed = []
        for draw in range(permutations + 1):
            kind = "uniform" if draw == permutations else "permuted"
            changed.append(_probabilities(trace, _edited(trace, layers, kind, name, seed + draw)))
        moved = total_variation(np.stack(changed), plain)
        flipped = (np.argmax(changed, axis=-1) != plain.argmax()).astype(float)
        if is_undefined(trace):
            moved, flipped = np.full((2, len(changed)), np.nan)
        samples.append(
            [
                [[float(np.median(moved[:-1]))], [float(moved[-1])]],
                [[flipped[:-1].mean()], [float(flipped[-1])]],
            ]
        )
    return scored(
        samples,
        "attention_permutation",
        model=traces[0].model_id,
        metrics=["total_variation", "flipped"],
        methods=["permuted", "uniform"],
        notes=[_ONE if np.isnan(samples).any() else ""],
        title="attention permuted",
        paper="Jain and Wallace 2019, Attention is not Explanation",
        options={"permutations": permutations, "seed": seed, "layer": layer},
    )


def _edited(trace: Trace, layers: tuple[int, ...], kind: str, stack: str, seed: int) -> Any:
    """Return logits with all rows of some layers permuted or uniform."""
    import torch

    from attnwidgets.intervene.edit_attention import edit_attention, rearranged
    from attnwidgets.intervene.preview import preview

    supplied = reruns_of(trace)
    if supplied is None:
        change = edit_attention(trace, dict.fromkeys(layers, "all"), kind, stack=stack, seed=seed)
        return preview(trace, change).logits
    weights = supplied.weights.clone()
    generator = torch.Generator().manual_seed(seed)
    for layer in layers:
        old = weights[layer]
        readable = old > 0
        noise = torch.rand(old.shape, generator=generator)
        uniform = readable / readable.sum(-1, keepdim=True).clamp_min(1)
        weights[layer] = uniform if kind == "uniform" else rearranged(old, readable, noise)
    with no_grad():
        return supplied.answer(weights).cpu()


@dataclass(frozen=True)
class AdversarialAttention(Table):
    """The attention of a search for weights far from the model's with nearly the same prediction.

    Attributes:
        layers: The layers that were changed.
        attention: The other weights [head, query, key], by layer.
        divergence: Jensen-Shannon divergence from the model's rows, 0 to log 2: the mean over heads, queries
            and layers.
        total_variation: Total variation between the two predictions, 0 to 1; at most `epsilon`.
        epsilon: How far it was allowed to move.
    """

    layers: tuple[int, ...]
    attention: dict[int, Float] = field(repr=False)
    divergence: float
    total_variation: float
    epsilon: float

    def _columns(self) -> Iterator[Columns]:
        """Yield layer, head, query, key, weight."""
        for layer in self.layers:
            sizes = zip(("head", "query", "key"), self.attention[layer].shape, strict=True)
            axes = {name: range(size) for name, size in sizes}
            columns = cells(axes, {"weight": self.attention[layer]})
            yield {"layer": [layer] * len(columns["weight"]), **columns}


@forceable
@documented
def adversarial_attention(
    trace: Any,
    layer: Any = -1,
    *,
    epsilon: float = EPSILON,
    steps: int = 100,
    rate: float = 0.3,
    penalty: float = 50.0,
    stack: str | None = None,
    seed: int = 0,
) -> AdversarialAttention:
    """Search for attention as unlike the model's as possible whose prediction stays within `epsilon`.

    Gradient ascent on the logits of all rows of the chosen layers maximises the Jensen-Shannon divergence of
    the rows less `penalty` times the total variation beyond epsilon. The result is the farthest step within
    epsilon. The search gives a lower bound: attention farther away may exist.

    Args:
        trace: Trace returned by `aw.trace`.
        layer: A layer number or several.
        epsilon: How far the prediction may move, in total variation, above 0 and at most 1.
        steps: Steps of the ascent, each a pass forward and back.
        rate: Learning rate of the ascent (Adam).
        penalty: Weight of the total variation beyond epsilon.
        stack: Which attention, if there are several: "self", "encoder", "decoder" or "cross".
        seed: Seed of the start, the model's attention with a little noise.
        force: {force}

    Returns:
        An AdversarialAttention.

    Raises:
        ValueError: If epsilon is out of range, the stack is unknown, the model gives no gradients, or it
            returns a single number, or numbers without probabilities.
        IndexError: If the layer is out of range.

    Source: Jain and Wallace 2019, section 4.2.2, equation 4.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film.")
        >>> other = aw.evaluate.adversarial_attention(trace, steps=5)
        >>> other.total_variation <= other.epsilon
        True
    """
    import torch

    require_trace(trace, "evaluate.adversarial_attention")
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon must be above 0 and at most 1, not {epsilon}.")
    name = resolve_stack(trace, stack)
    layers = _layers(trace, layer, name)
    generator = torch.Generator().manual_seed(seed)
    attention = {number: trace.attention_layer(number, name) for number in layers}
    # Keys with a weight of zero are not free: the model may mask them.
    free = {
        number: (
            torch.where(weights > 0, weights.clamp_min(1e-30).log(), -torch.inf)
            + 0.01 * torch.randn(weights.shape, generator=generator).to(weights)
        ).requires_grad_()
        for number, weights in attention.items()
    }

    target = resolve_target(trace, None, method="adversarial_attention")
    plain = torch.from_numpy(_probabilities(trace, trace.logits))
    if is_undefined(trace):
        raise ValueError(f"adversarial_attention is {_ONE}.")
    best = AdversarialAttention(
        layers, {n: w.double().numpy() for n, w in attention.items()}, 0.0, 0.0, epsilon
    )
    optimizer = torch.optim.Adam(list(free.values()), lr=rate)
    with _attending(trace, name, free) as run:
        for _ in progress(range(steps), "looking for other attention"):
            logits = run()
            row = logits if logits.dim() == 1 else logits[target.position]
            moved = (trace.answer.probabilities(row).double() - plain.to(row.device)).abs().sum() / 2
            distance = torch.stack([_divergence(free[n].softmax(-1), attention[n]) for n in layers]).mean()
            now, far = float(moved.detach()), float(distance.detach())
            if now <= epsilon and far > best.divergence:
                rows = {n: free[n].softmax(-1).detach().double().numpy() for n in layers}
                best = AdversarialAttention(layers, rows, far, now, epsilon)
            optimizer.zero_grad()
            loss = penalty * (moved - epsilon).clamp_min(0).cpu() - distance
            grads = torch.autograd.grad(loss, list(free.values()))
            for logits_of_rows, grad in zip(free.values(), grads, strict=True):
                logits_of_rows.grad = torch.nan_to_num(grad)
            optimizer.step()
    return best


@contextmanager
def _attending(trace: Trace, stack: str, free: Mapping[int, Tensor]) -> Iterator[Callable[[], Tensor]]:
    """Yield a function that returns logits, with gradients, of the rows that `free` holds at the time."""
    import torch

    from attnwidgets.tracing.gradients.differentiable import differentiable
    from attnwidgets.tracing.interventions import Intervention

    supplied = reruns_of(trace)
    if supplied is not None:

        def answer() -> Tensor:
            rows = [free[n].softmax(-1) if n in free else old for n, old in enumerate(supplied.weights)]
            logits: Tensor = supplied.answer(torch.stack(rows))
            if not logits.requires_grad:
                raise ValueError(
                    "adversarial_attention takes gradients, and rerun returned logits that do not depend on "
                    "`weights` by differentiable steps: use them as they are, without torch.no_grad()."
                )
            return logits

        with enable_grad():
            yield answer
        return

    class Given(Intervention):
        """The rows that the search changes."""

        def __init__(self) -> None:
            where = frozenset((stack, number) for number in free)
            super().__init__(trace, "adversarial_attention", "attention looked for", where)

        def weigh(self, seen: Seen, weights: Tensor) -> Tensor:
            return free[seen.layer].softmax(-1)[None].to(weights)

    with differentiable(trace, "adversarial_attention") as run, Given():
        yield lambda: run().outputs.logits[0]


def _divergence(new: Tensor, old: Tensor) -> Tensor:
    """Return the mean Jensen-Shannon divergence of rows, differentiable."""
    import torch

    old = old.to(new)
    middle = ((new + old) / 2).clamp_min(1e-30).log()
    parts = [
        torch.where(side > 0, side * (side.clamp_min(1e-30).log() - middle), 0.0).sum(-1)
        for side in (new, old)
    ]
    return ((parts[0] + parts[1]) / 2).double().mean()


def _layers(trace: Trace, layer: Any, stack: str) -> tuple[int, ...]:
    return pick(slice(None) if layer is None else layer, trace.layers(stack), "layer")


def is_undefined(trace: Trace) -> bool:
    """Return whether a model has no probabilities of several answers."""
    return trace.answer.reading == "none" or trace.logits is None or trace.logits.numel() == 1


def _probabilities(trace: Trace, logits: Any) -> Float:
    """Return the probabilities at the position of the prediction."""
    target = resolve_target(trace, None, method="attention_permutation")
    row = logits.double() if logits.dim() == 1 else logits[target.position].double()
    return trace.answer.probabilities(row).numpy()
