"""aw.circuits.component_relevance: contextual decomposition of heads and MLPs, and a circuit from it.

The state of a run is the sum of two parts, relevant and irrelevant, in a copy for every component. `_Sweep`
goes through the blocks: at each, copies are added for the components of its layer, and all copies pass the
block by the rules of `contextual_decomposition`. `_Visit` intervenes within a block: there the outputs of a
component become the relevant part of its copy, and copies of earlier components are compared with them, which
fills `between`. The model's head then splits the target of every copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._selecting import at_most
from attnwidgets._tables import Table
from attnwidgets.circuits.components import Component, components
from attnwidgets.circuits.pair import pair_of
from attnwidgets.explanations.attribution.contextual_decomposition import PAPER, logit_parts_in_two
from attnwidgets.explanations.mixing.logit_targets import target_logits
from attnwidgets.tracing.algebra.block_runs import chain_of
from attnwidgets.tracing.algebra.decomposed_layer import read_layer
from attnwidgets.tracing.algebra.steps import apply_steps
from attnwidgets.tracing.algebra.two_parts import TwoParts, all_irrelevant, through_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.algebra.decomposed_layer import DecomposedLayer
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

__all__ = ["PAPER", "ComponentRelevance", "RelevantComponent", "component_relevance"]
_NAME = "component_relevance"


class RelevantComponent(NamedTuple):
    """A head or an MLP, and its part of the target.

    Attributes:
        component: The head or MLP.
        relevant: The component's part of the target, less its foil.
    """

    component: Component
    relevant: float


@dataclass(frozen=True, repr=False)
class ComponentRelevance(Table):
    """The parts of a target, and of later components, that come from every head and MLP.

    Attributes:
        components: Heads and MLPs, layer by layer.
        relevant: The part of the target, less its foil, that comes from each [component].
        irrelevant: The rest [component]; both sum to `whole`.
        between: The share of a later component's output (of its difference from the reference) that comes
            from an earlier one [component, component]: rel . d / d . d over all tokens, d being all of it;
            NaN where the second does not read the first.
        whole: The target, less its foil.
        reference: The same in the reference; None without a reference.
    """

    components: tuple[Component, ...]
    relevant: Float
    irrelevant: Float
    between: Float
    whole: float
    reference: float | None

    @property
    def heads(self) -> Float:
        """The relevant parts of heads [layer, head]; NaN for heads that a layer does not have."""
        layers = self.components[-1].layer + 1
        width = max((part.head for part in self.components if part.head is not None), default=-1) + 1
        values = np.full((layers, width), np.nan)
        for part, value in zip(self.components, self.relevant, strict=True):
            if part.head is not None:
                values[part.layer, part.head] = value
        return values

    @property
    def mlps(self) -> Float:
        """The relevant parts of MLPs [layer]."""
        of_mlps = [part.head is None for part in self.components]
        return self.relevant[of_mlps]

    def _columns(self) -> Iterator[Columns]:
        """Yield kind, layer, head, relevant, irrelevant."""
        columns: dict[str, Any] = {
            name: [getattr(part, name) for part in self.components] for name in Component._fields
        }
        yield columns | {"relevant": self.relevant, "irrelevant": self.irrelevant}

    def top(self, k: int | None = 10) -> list[RelevantComponent]:
        """Return the components with the largest relevant parts by size, the largest first.

        Args:
            k: Largest number of components; None: all.

        Raises:
            ValueError: If `k` is below 1.
        """
        order = at_most(np.argsort(-np.abs(self.relevant), kind="stable").tolist(), k)
        return [RelevantComponent(self.components[i], float(self.relevant[i])) for i in order]

    def circuit(self, threshold: float = 0.1) -> tuple[Component, ...]:
        """Return the components that reach the target, and those that reach these, layer by layer.

        Args:
            threshold: Smallest part: of the target relative to the largest part, and of the output of a
                component that is already in the circuit.

        Raises:
            ValueError: If it is not between 0 and 1.
        """
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be above 0 and at most 1, not {threshold!r}.")
        sizes = np.abs(self.relevant)
        largest = float(sizes.max(initial=0.0))
        result = set(np.flatnonzero(sizes >= threshold * largest).tolist()) if largest > 0 else set()
        new = set(result)
        reaches = np.abs(np.nan_to_num(self.between)) >= threshold
        while new:
            new = {int(i) for receiver in new for i in np.flatnonzero(reaches[:, receiver])} - result
            result |= new
        return tuple(self.components[i] for i in sorted(result))

    def __repr__(self) -> str:
        shown = "; ".join(f"{part} {value:+.2f}" for part, value in self.top(3))
        return f"<ComponentRelevance of {len(self.components)} components, target {self.whole:.3g}: {shown}>"


def component_relevance(
    trace: Any,
    target: Any = None,
    *,
    foil: Any = None,
    reference: Any = None,
    stack: str | None = None,
    batch_size: int = 64,
) -> ComponentRelevance:
    """Return the part of a target that comes from every head and MLP, by contextual decomposition (CD-T).

    The output of a component is relevant, or only its difference from the output in a reference run, and
    all else is irrelevant. Both parts are carried to the target as `aw.circuits.contextual_decomposition`
    carries tokens: they add up to the state at every step. No gradient is taken, the model is not run again,
    and all components pass the blocks together. Attention patterns are treated as fixed: effects through the
    queries and keys of a later head are missing; patch paths for those.

    With a reference, a gated feed-forward layer follows the paper's rule for nonlinear functions,
    f(b + g) - f(g): b is small there, and this is the layer's loss without the component. Without it, parts
    are large, the rule lets them grow block after block, and half of the product follows each factor, as for
    tokens. Biases are shared by the sizes of both parts in either case, as published: where they are large,
    values are smaller than those of patching (4.2 of 5.5 for the head of `aw.zoo.negation()`).

    Args:
        trace: A trace made by `aw.trace`.
        target: The logit, as for `contextual_decomposition`; by default the model's prediction.
        foil: Contrasting target.
        reference: A trace of a text with the same number of tokens by the same model, such as the corrupt
            trace of `aw.circuits.patch`; None makes the whole output of a component relevant.
        stack: Stack that the head reads.
        batch_size: Number of components whose copies pass a block together.

    Returns:
        ComponentRelevance: `.heads` [layer, head], `.mlps` [layer], `.between`, `.circuit(threshold)`. With a
        reference, values are comparable to `-aw.circuits.patch(..., how="noise").raw`: the loss of
        the target when the component comes from the other run.

    Raises:
        ValueError: If the runs do not correspond (see `aw.circuits.patch`), `target` is a list, or
            batch_size is below 1, or the parts no longer add up to the target (references that differ much);
            as `UnsupportedModelError`, if no description fits blocks or head.

    Source: Hsu et al. 2025, Efficient Automated Circuit Discovery in Transformers using Contextual
    Decomposition, sections 3 and 4. There components are selected layer by layer, each layer with a
    threshold; here all layers share it.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> clean, corrupt = (aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb"))
        >>> relevance = aw.circuits.component_relevance(clean, "c", foil="a", reference=corrupt)
        >>> relevance.top(1)[0].component, relevance.heads.round(1).tolist()
        (Component(kind='head', layer=1, head=0), [[0.0, 0.0], [20.0, 0.0]])
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}.")
    logits = target_logits(trace, target, foil, method=_NAME, stack=stack)
    if logits.several:
        raise ValueError(f"{_NAME} explains one target at a time; call it for each of {len(logits.cells)}.")
    stack = logits.stack
    traces = [trace]
    before = None
    if reference is not None:
        traces.append(pair_of(trace, reference, stack, _NAME).corrupt)
        cells = (*logits.cells, *logits.foil_cells)
        scores = [
            float((traces[1].logits if row is None else traces[1].logits[row])[index]) for row, index in cells
        ]
        before = scores[0] - sum(scores[1:])
    every = components(trace, stack)
    with no_grad():
        sweep = _Sweep(traces, stack, every, batch_size)
        parts = sweep.run()
        both = [logit_parts_in_two(trace, logits, part, _NAME) for part in parts]
    relevant, irrelevant = (
        torch.cat([getattr(pair, name)[:, 0] for pair in both]).cpu().double().numpy()
        for name in ("relevant", "irrelevant")
    )
    return ComponentRelevance(
        tuple(every), relevant, irrelevant, sweep.between, float(logits.scores[0]), before
    )


class _Written(NamedTuple):
    """The outputs of a layer's components in a run.

    Attributes:
        heads: Mixed values of heads [token, head, head dim].
        mlp: Output of the feed-forward layer [token, dim].
    """

    heads: Tensor
    mlp: Tensor


def _written(layer: DecomposedLayer, row: Tensor) -> _Written:
    """Return the outputs of a layer's components; `row` [token] scales heads (a norm after attention)."""
    block = layer.block
    read = block.hidden if block.layout.order == "parallel" else layer.middle
    norm = block.norm1 if block.layout.order == "post" else block.norm2
    mlp = apply_steps(layer.feed, read if norm is None else norm(read))
    return _Written(block.mixed.transpose(0, 1) * row[:, None, None], mlp)


class _Sweep:
    """All components carried over the blocks at once: those of a layer join the earlier components there.

    Args:
        traces: The run, and its reference if there is one.
        stack: The stack.
        every: The components, layer by layer.
        batch_size: Number of copies of a group.
    """

    def __init__(self, traces: list[Trace], stack: str, every: list[Component], batch_size: int) -> None:
        self._runs = [chain_of(trace, stack, _NAME) for trace in traces]
        self._every, self._batch = every, batch_size
        self.between = np.full((len(every), len(every)), np.nan)

    def run(self) -> list[TwoParts]:
        """Return the parts of the last block's output for every component, and fill `between`."""
        groups: list[tuple[list[int], TwoParts]] = []
        for number in progress(range(len(self._runs[0])), desc=_NAME):
            layers = [read_layer(blocks[number], _NAME) for blocks in self._runs]
            row = layers[0].block.branch()[1]
            outputs = _written(layers[0], row)
            reference = _written(layers[1], row) if len(layers) > 1 else None
            joining = [index for index, part in enumerate(self._every) if part.layer == number]
            hidden = layers[0].block.hidden
            for start in range(0, len(joining), self._batch):
                members = joining[start : start + self._batch]
                groups.append((members, all_irrelevant(hidden, len(members))))
            visit = _Visit(self._every, self.between, number, outputs, reference)
            for group, (members, parts) in enumerate(groups):
                visit.members = members
                groups[group] = (
                    members,
                    through_block(layers[0], parts, visit.heads, visit.mlp, divided=reference is None),
                )
        return [parts for _, parts in groups]


class _Visit:
    """Hooks of a layer for the parts that pass: outputs of its components become relevant, or are compared.

    Args:
        every: The components.
        between: Shares to fill [component, component].
        layer: Number of the layer.
        outputs: Outputs of its components.
        reference: Their outputs in the reference; None makes all relevant.
    """

    members: list[int]

    def __init__(
        self,
        every: list[Component],
        between: Float,
        layer: int,
        outputs: _Written,
        reference: _Written | None,
    ) -> None:
        self._every, self._between, self._layer = every, between, layer
        self._outputs, self._reference = outputs, reference
        self._index_of = {part: number for number, part in enumerate(every) if part.layer == layer}

    def heads(self, copies: slice, mixed: TwoParts) -> TwoParts:
        """Return mixed values [copy, token, head, head dim], with the layer's heads set in their copies."""
        rest = None if self._reference is None else self._reference.heads
        distinct = self._outputs.heads if rest is None else self._outputs.heads - rest
        shares = _shares(mixed.relevant, distinct)  # [copy, head]
        for copy, position in enumerate(self.members[copies]):
            part = self._every[position]
            if part.layer < self._layer:
                for head, share in enumerate(shares[copy]):
                    self._between[position, self._index_of[Component("head", self._layer, head)]] = share
            elif part.head is not None:
                mixed.relevant[copy, :, part.head] = distinct[:, part.head]
                mixed.irrelevant[copy, :, part.head] = 0 if rest is None else rest[:, part.head]
        return mixed

    def mlp(self, copies: slice, fed: TwoParts) -> TwoParts:
        """Return outputs of the feed-forward layer [copy, token, dim], set in the copy of this MLP."""
        rest = None if self._reference is None else self._reference.mlp
        distinct = self._outputs.mlp if rest is None else self._outputs.mlp - rest
        shares = _shares(fed.relevant[:, :, None], distinct[:, None])[:, 0]
        receiver = self._index_of[Component("mlp", self._layer)]
        for copy, position in enumerate(self.members[copies]):
            if position == receiver:
                fed.relevant[copy] = distinct
                fed.irrelevant[copy] = 0 if rest is None else rest
            else:
                self._between[position, receiver] = shares[copy]
        return fed


def _shares(relevant: Tensor, distinct: Tensor) -> Float:
    """Return rel . d / d . d over tokens and dimensions [copy, head]; 0 where d is 0.

    Args:
        relevant: [copy, token, head, dim].
        distinct: d [token, head, dim].
    """
    sizes = distinct.double().square().sum((0, 2))
    products = (relevant.double() * distinct.double()).sum((1, 3))
    shares = torch.where(sizes > 0, products / torch.where(sizes > 0, sizes, 1.0), 0.0)
    values: Float = shares.cpu().numpy()
    return values
