"""aw.circuits.edge_attribution: how much every connection between two components matters, to first order.

Passes with a graph record the states before blocks and the outputs of attention, heads and MLPs (`_Passes`).
At each point between the runs, `_slopes` computes the gradient of the target by the input of every receiver,
through this receiver alone, and `_scores` multiplies it with the differences of the senders' outputs.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch

from attnwidgets._gradients import enable_grad
from attnwidgets._progress import progress
from attnwidgets._selecting import at_most
from attnwidgets._tables import Table, cells
from attnwidgets.circuits.components import Component, components
from attnwidgets.circuits.pair import pair_of, require_full_precision
from attnwidgets.explanations.targets.target_set import resolve_target_set
from attnwidgets.intervene.activation_sites import points_of, reading_activations
from attnwidgets.intervene.preview import pass_options
from attnwidgets.tracing.algebra.block_runs import require_whole
from attnwidgets.tracing.gradients.gradient_hooks import require_gradients
from attnwidgets.tracing.recording.borrow import borrowed, unwrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.pair import Pair
    from attnwidgets.explanations.targets.target_set import TargetSet
    from attnwidgets.intervene.activation_sites import Site

    Float = NDArray[np.float64]

PAPER = "Hanna et al. 2024, Have Faith in Faithfulness (EAP-IG); Syed et al. 2023 (EAP)"


class Edge(NamedTuple):
    """A connection through the residual stream.

    Attributes:
        sender: The input, a head or an MLP, whose output is read.
        receiver: A head, an MLP or the output, which reads it.
        score: Estimated change of the target if the receiver read the sender's output of the corrupt run.
    """

    sender: Component
    receiver: Component
    score: float


@dataclass(frozen=True, repr=False)
class EdgeAttribution(Table):
    """Scores of all connections between components.

    Attributes:
        senders: The input, heads and MLPs, layer by layer.
        receivers: Heads and MLPs, layer by layer, and the output.
        scores: [sender, receiver], in units of the target; NaN where the receiver does not read the sender.
        steps: Number of points between the runs at which gradients were computed.
    """

    senders: tuple[Component, ...]
    receivers: tuple[Component, ...]
    scores: Float
    steps: int

    def _columns(self) -> Iterator[Columns]:
        """Yield sender, receiver, score."""
        ends = {"sender": [*map(str, self.senders)], "receiver": [*map(str, self.receivers)]}
        yield cells(ends, {"score": self.scores})

    def top(self, k: int | None = 10) -> list[Edge]:
        """Return the edges with the largest scores by size, the largest first.

        Args:
            k: Largest number of edges; None: all.

        Raises:
            ValueError: If `k` is below 1.
        """
        flat = np.abs(np.where(np.isnan(self.scores), -1.0, self.scores)).reshape(-1)
        is_edge = ~np.isnan(self.scores.reshape(-1))
        order = at_most([index for index in np.argsort(-flat, kind="stable") if is_edge[index]], k)
        pairs = [divmod(int(index), len(self.receivers)) for index in order]
        return [Edge(self.senders[i], self.receivers[j], float(self.scores[i, j])) for i, j in pairs]

    def circuit(self, edges: int) -> tuple[Component, ...]:
        """Return the heads and MLPs on paths from input to output over the largest edges, layer by layer.

        Args:
            edges: Number of edges.
        """
        chosen = [(edge.sender, edge.receiver) for edge in self.top(edges) if edge.score]
        first, last = _reached(chosen, forward=True), _reached(chosen, forward=False)
        return tuple(part for part in self.senders[1:] if part in first and part in last)

    def __repr__(self) -> str:
        shown = "; ".join(f"{edge.sender} to {edge.receiver} {edge.score:+.2f}" for edge in self.top(3))
        return f"<EdgeAttribution [sender {len(self.senders)}, receiver {len(self.receivers)}]: {shown}>"


def _reached(edges: list[tuple[Component, Component]], *, forward: bool) -> set[Component]:
    """Return the components that are reached from the input, or that reach the output."""
    pairs = edges if forward else [(receiver, sender) for sender, receiver in edges]
    kind = "input" if forward else "output"
    result = {start for start, _ in pairs if start.kind == kind}
    while new := {end for start, end in pairs if start in result and end not in result}:
        result |= new
    return result


def edge_attribution(
    clean: Any,
    corrupt: Any,
    target: Any = None,
    *,
    foil: Any = None,
    steps: int = 5,
    model: Any = None,
    tokenizer: Any = None,
    stack: str | None = None,
) -> EdgeAttribution:
    """Return how much every connection between two components matters (EAP with integrated gradients).

        score(u -> v) = sum over tokens of (z'_u - z_u) . mean over k of dm/d(input of v) at e_k
        e_k = e' + (k / steps) (e - e'),  k = 0 .. steps - 1

    z are the outputs of components in the clean run, z' in the corrupt run, e the embeddings; m is the target
    less its foil. As in the authors' code, the clean end is not reached. `steps=1` is attribution at the
    corrupt run (EAP). A head's query, key and value count as a single input. The estimates are of first
    order: check a circuit by `aw.circuits.faithfulness`.

    Args:
        clean: A trace, or a text (then `model` and `tokenizer`).
        corrupt: The same, with the same number of tokens.
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: Contrasting target.
        steps: Number of points at which gradients are computed, each a forward and a backward pass.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").

    Returns:
        EdgeAttribution: `.scores` [sender, receiver], `.top(10)`, `.circuit(edges)`.

    Raises:
        ValueError: If `steps` is below 1, or the model computes in half precision; see `patch`.
        UnsupportedModelError: If states, heads or MLPs of this family cannot be located.

    Source: Hanna et al. 2024, section 3.2 (EAP-IG, inputs); Syed et al. 2023.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> texts = [aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb")]
        >>> edges = aw.circuits.edge_attribution(*texts, "c", foil="a")
        >>> sorted(f"{edge.sender} to {edge.receiver}" for edge in edges.top(2))
        ['head 1.0 to output', 'input to head 1.0']
        >>> [str(part) for part in edges.circuit(2)]
        ['head 1.0']
    """
    if steps < 1:
        raise ValueError(f"steps must be 1 or more, not {steps}.")
    pair = pair_of(clean, corrupt, stack, "edge_attribution", model, tokenizer)
    targets = resolve_target_set(pair.clean, target, foil, "edge_attribution").single("edge_attribution")
    inner = unwrap(pair.clean.model)
    require_gradients(inner, "edge_attribution")
    require_whole(pair.clean, pair.stack, "edge_attribution")
    require_full_precision(pair, "edge_attribution")
    every = components(pair.clean, pair.stack)
    senders = (Component("input", -1), *every)
    receivers = (*every, Component("output", pair.clean.layers(pair.stack)[-1] + 1))
    with _Passes(pair, targets) as passes:
        ends = [passes.run(side, None) for side in (0, 1)]
        embeddings = [end.at["state", 0].detach() for end in ends]
        differences = {
            point: (ends[1].at[point] - activations).detach() for point, activations in ends[0].at.items()
        }
        scores = np.zeros((len(senders), len(receivers)))
        for step in progress(range(steps), "edges"):
            start = embeddings[1] + (step / steps) * (embeddings[0] - embeddings[1])
            result, parallel = _scores(passes.run(1, start), differences, senders, receivers)
            scores += result
    unread = [[_order(u, parallel) >= _order(v, parallel) for v in receivers] for u in senders]
    return EdgeAttribution(senders, receivers, np.where(unread, np.nan, scores / steps), steps)


def _order(part: Component, parallel: frozenset[int]) -> tuple[int, int]:
    """Return a component's rank: heads of a layer read alike, its MLP after them unless it is parallel."""
    return part.layer, int(part.kind == "mlp" and part.layer not in parallel)


@dataclass(frozen=True)
class _Run:
    """A pass with its graph: activations by site and layer, and the target."""

    at: Mapping[tuple[Site, int], Tensor]
    score: Tensor


class _Passes:
    """Context manager: differentiable passes of a pair, which record states, attention, heads and MLPs.

    Args:
        pair: The pair.
        targets: The target, with its foil.
    """

    def __init__(self, pair: Pair, targets: TargetSet) -> None:
        self._pair, self._targets = pair, targets
        layers = pair.clean.layers(pair.stack)
        self._heads = list(layers)
        points: list[tuple[Site, int]] = [
            (site, layer) for site in ("state", "attention", "mlp") for layer in layers
        ]
        self._points = points_of(pair.clean, points, pair.stack)
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self._twin = self._exits.enter_context(borrowed(unwrap(self._pair.clean.model)))
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def run(self, side: int, embeddings: Tensor | None) -> _Run:
        """Return a pass of the clean (0) or corrupt (1) text, with other states before the first block."""
        trace, pair = self._pair.sides[side], self._pair
        recorded: dict[tuple[Site, int], Tensor] = {}

        def record(site: Site, layer: int, activations: Tensor) -> Tensor:
            if (site, layer) == ("state", 0):
                start = activations if embeddings is None else embeddings
                activations = start.detach().clone().requires_grad_()
            recorded[site, layer] = activations
            return activations.clone() if site == "state" else activations

        reading = reading_activations(self._twin, pair.clean, pair.stack, self._points, self._heads, record)
        with torch.inference_mode(mode=False), enable_grad(), reading:
            options = pass_options(self._twin) | dict.fromkeys(self._targets.reads, True)
            outputs = trace.call(self._twin, trace.inputs, options, {})
            return _Run(recorded, self._targets.scores(outputs)[0].sum())


def _scores(
    run: _Run,
    differences: Mapping[Any, Tensor],
    senders: tuple[Component, ...],
    receivers: tuple[Component, ...],
) -> tuple[Float, frozenset[int]]:
    """Return scores [sender, receiver] by one pass (undefined where no edge exists), and parallel layers."""
    slopes, parallel = _slopes(run, receivers)
    scores = np.zeros((len(senders), len(receivers)))
    written: dict[int, Tensor] = {}
    for row, part in enumerate(senders):
        if part.kind == "head":
            if part.layer not in written:
                written[part.layer] = _written(run, part.layer, differences["head", part.layer])
            change = written[part.layer][int(part.head or 0)]
        else:
            change = differences["state" if part.kind == "input" else "mlp", max(part.layer, 0)][0]
        scores[row] = torch.einsum("vtw,tw->v", slopes.double(), change.double()).cpu().numpy()
    return scores, parallel


def _grad(of: Tensor, at: Tensor, weights: Tensor) -> Tensor:
    (result,) = torch.autograd.grad(
        of, at, weights, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return result


def _slopes(run: _Run, receivers: Sequence[Component]) -> tuple[Tensor, frozenset[int]]:
    """Return gradients at the inputs of components, and the layers whose MLP reads the block's input.

    Returns:
        The target's gradient at the input of each component, through it alone [receiver, token, width], and
        the layers that are parallel.
    """
    points = [point for point in run.at if point[0] in ("head", "mlp")]
    result = torch.autograd.grad(
        run.score,
        [run.at[point] for point in points],
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    slope_at = dict(zip(points, result, strict=True))
    last = max(layer for _, layer in points)
    slopes, parallel = [], set()
    for part in receivers:
        if part.kind == "output":
            # The output of the last MLP is added to the last residual stream and to nothing else.
            slopes.append(slope_at["mlp", last][0])
            continue
        state = run.at["state", part.layer]
        point: tuple[Site, int] = ("head" if part.kind == "head" else "mlp", part.layer)
        weights = slope_at[point]
        if part.kind == "head":
            of_head = torch.zeros_like(weights)
            of_head[:, part.head] = weights[:, part.head]
            slopes.append(_grad(run.at[point], state, of_head)[0])
            continue
        (through_attention,) = torch.autograd.grad(
            run.at[point], run.at["attention", part.layer], weights, retain_graph=True, allow_unused=True
        )
        through = cast("Tensor | None", through_attention)
        if through is None:
            parallel.add(part.layer)
            through = _grad(run.at[point], state, weights)
        slopes.append(through[0])
    return torch.stack(slopes), frozenset(parallel)


def _written(run: _Run, layer: int, difference: Tensor) -> Tensor:
    """Return the output projection of every head's difference [head, token, width]."""
    heads, attention = run.at["head", layer], run.at["attention", layer]
    # The Jacobian-vector product as two vector-Jacobian products; the projection is linear.
    probe = torch.zeros_like(attention, requires_grad=True)
    (back,) = torch.autograd.grad(attention, heads, probe, create_graph=True, retain_graph=True)
    written = []
    for head in range(heads.shape[1]):
        change = torch.zeros_like(back)
        change[:, head] = difference[:, head]
        (forward,) = torch.autograd.grad(back, probe, change, retain_graph=True)
        written.append(forward[0])
    return torch.stack(written)
