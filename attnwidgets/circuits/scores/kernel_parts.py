"""aw.circuits.kernel_parts: which parts of a query and a key make a weight of a kernel without softmax."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._errors import quoted, require_choice
from attnwidgets._gradients import no_grad
from attnwidgets._selecting import element, pick
from attnwidgets._tables import Table, cells
from attnwidgets.circuits.scores.shares import Paired
from attnwidgets.explanations.mixing.kernel_row import mixer_at
from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack
from attnwidgets.relevance.frozen_kernels import side_maps
from attnwidgets.tracing.algebra.block_runs import require_every_block
from attnwidgets.tracing.algebra.blocks import tolerance
from attnwidgets.tracing.algebra.query_key import exact
from attnwidgets.tracing.algebra.residual_parts import input_parts
from attnwidgets.tracing.block_replay import captured
from attnwidgets.tracing.mixers.kernels import AttentionWeights, Identity
from attnwidgets.tracing.mixers.runs import mixed_block
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.mixers.mix import MixedBlock
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

NAME = "kernel_parts"
PAPER = "Dao and Gu 2024, Transformers are SSMs; Yang et al. 2024, Gated Delta Networks"
BY = ("component", "token")
_CLOSE = 1e-4  # of the lengths of a query and a key, how near their parts come to the weight, in float32
_READ = 3


@dataclass(frozen=True, repr=False)
class KernelParts(Paired, Table):
    """A weight of a kernel as the sum over pairs of a part of the query and a part of the key.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        query: Index of the position that reads.
        key: Index of the position that is read.
        words: Both tokens.
        kind: How the head mixes tokens.
        by: The kind of parts: "component" or "token".
        weight: The weight alpha.
        parts: The names of the query's parts, and of the key's; the last of each, "constant", is of biases.
        pairs: Shares [query part, key part], which sum to the weight less `given`, float64.
        held: Factors that are held fixed, by name: "decay" from key to query, "step size" or "beta" of the
            key.
        given: Terms outside of the pairs: "skip", the kernel's connection past its state.
    """

    layer: int
    head: int
    query: int
    key: int
    words: tuple[str, str]
    kind: str
    by: str
    weight: float
    parts: tuple[tuple[str, ...], tuple[str, ...]]
    pairs: Float
    held: Mapping[str, float]
    given: Mapping[str, float]

    @property
    def _sides(self) -> tuple[Sequence[str], Sequence[str]]:
        return self.parts

    def _columns(self) -> Iterator[Columns]:
        """Yield query part, key part, share."""
        yield cells({"query_part": self.parts[0], "key_part": self.parts[1]}, {"share": self.pairs})

    def __repr__(self) -> str:
        reads, read = self.words
        offers = ", ".join(f"{share.key} {share.value:+.3g}" for share in self.top(_READ, "offers"))
        held = ", ".join(f"{name} {value:.3g}" for name, value in self.held.items())
        return (
            f"<KernelParts by {self.by}: {reads} reads {read} with {self.weight:.3g} in head "
            f"{self.layer}.{self.head} ({self.kind}). {read} offers {offers}. Held fixed: {held}.>"
        )


def kernel_parts(
    trace: Any,
    query: int | str,
    key: int | str,
    *,
    layer: int,
    head: int,
    by: str = "component",
    stack: str | None = None,
) -> KernelParts:
    """Return which parts of a query and a key make a weight of a block that mixes tokens without softmax.

    In linear attention, delta rules and Mamba 2, the weight is bilinear in the query (C) and the key (B):

        alpha(i, j) = sum over a, b of  carried_ij(q_a(i)) . k_b(j)

    where q_a and k_b are the images of parts of the residual stream, with norms, activations and
    convolutions' gates held fixed, and `carried` is the map from j to i: decay, step sizes, and
    erasure by the keys between. These depend on the text, too; they are factors that are held fixed and not
    split further. Without a softmax keys do not compete, and the weight itself is split.

    Args:
        trace: A trace made by `aw.trace`.
        query: The token that reads: its number, or its label if no other has it.
        key: The token that is read, not after the query.
        layer: Number of the block.
        head: Number of the head, as in `aw.mixing`.
        by: "component" (embeddings, the mixing and the feed-forward layer of every earlier block; a block
            that cannot be divided so is a part with all before it), or "token": the tokens that a short
            convolution joins in the query and the key.
        stack: Stack of a model that has several.

    Returns:
        KernelParts: `.pairs` [query part, key part], their margins `.asks` and `.offers`, `.weight`, in the
        kernel's unit; `.held` and `.given`; `.top(6)`.

    Raises:
        ValueError: If the key is after the query, an option is unknown, or several tokens have the label.
        IndexError: If a number is out of range.
        UnsupportedModelError: If the head attends (see `aw.why`), each channel has a kernel of its own, or
            weights of the kernel are not bilinear in queries and keys; or if these cannot be followed to the
            input of the block.

    Source: Dao and Gu 2024, section 3 (Mamba 2 as masked attention); Yang et al. 2024, equation 10.

    Example:
        >>> model, tokenizer = aw.zoo.last_marked()
        >>> trace = aw.trace(model, tokenizer, "cf#bd#aheg")
        >>> aw.circuits.kernel_parts(trace, 10, 6, layer=0, head=0, by="token").top(1, "offers")
        [Share(query='', key='# [6]', value=0.5)]
    """
    require_choice("by", by, BY)
    require_trace(trace, f"circuits.{NAME}")
    stack = resolve_stack(trace, stack)
    labels = trace.axes(stack)[0].units["token"].labels
    at, read = element(query, labels, "query"), element(key, labels, "key")
    numbers = trace.mixing_layers(stack)
    (layer,) = pick(layer, numbers, "layer")
    kind, mix, group = mixer_at(trace, layer, head, stack)
    if mix is None:
        raise UnsupportedModelError(
            f"{NAME} is about heads without a softmax, and head {layer}.{head} attends; aw.why splits its "
            "scores."
        )
    if read > at:
        raise ValueError(f"key: token {at} does not read token {read}, which comes after it.")
    kernel = mix.proved.kernel
    sides = kernel.sides()
    if sides is None:
        each = kernel.n_groups == mix.n_channels > 1
        raise UnsupportedModelError(
            f"{NAME}: weights of {mix.path} ({kernel.kind}) are not split, because "
            + (
                f"each of its {mix.n_channels} channels has a kernel of its own."
                if each
                else "they are no product of a query and a key alone."
            )
        )
    require_every_block(trace, stack, NAME, attention=False)
    chain = [mixed_block(trace, number, stack, NAME) for number in numbers if number <= layer]
    ours = [other for other in chain[-1].mixes if not isinstance(other.kernel, (AttentionWeights, Identity))]
    place = next(index for index, other in enumerate(ours) if other.path == mix.path)
    maps = side_maps(trace, layer, stack, place, group, (at, read), NAME)
    with no_grad():
        names, states = _component_states(trace, stack, chain)
        made, parts = [], []
        for side in maps:
            by_both = torch.einsum("dtw,ptw->ptd", side.slopes, states)
            if by == "component":
                vectors, labelled = by_both.sum(1), names
            else:
                tokens = side.slopes.abs().sum((0, 2)).nonzero().flatten().tolist()
                vectors = by_both.sum(0)[tokens]
                labelled = [f"{labels[token].strip(' ␣▁')} [{token}]" for token in tokens]
            made.append(torch.cat([vectors, (side.vector - vectors.sum(0))[None]]))
            parts.append((*labelled, "constant"))
        carried = kernel.carried(made[0], group, at, read)
        pairs = carried @ made[1].T
        weight = float(kernel.rows([at])[group, 0, read])
        whole = kernel.carried(maps[0].vector[None], group, at, read)[0]
    size = float(whole.norm() * maps[1].vector.norm())
    skips = getattr(kernel, "d", None) if at == read else None
    given = {} if skips is None else {"skip": float(skips[group])}
    made_again = float(whole @ maps[1].vector) + sum(given.values())
    if not abs(made_again - weight) <= _CLOSE * max(size, abs(weight)):
        raise UnsupportedModelError(
            f"{NAME}: queries and keys of {mix.path} give a weight of {made_again:.4g} when its block runs "
            f"again, and {weight:.4g} was recorded. An intervention is not followed; trace the text again."
        )
    return KernelParts(
        layer,
        head,
        at,
        read,
        (quoted(labels[at].strip(" ␣▁")), quoted(labels[read].strip(" ␣▁"))),
        kind,
        by,
        weight,
        (parts[0], parts[1]),
        pairs.numpy(),
        _held(kernel, group, at, read),
        given,
    )


def _held(kernel: Any, group: int, query: int, key: int) -> dict[str, float]:
    """Return the factors between a key and a query."""
    forgetting = kernel.forgetting()
    held = {"decay": float(forgetting["decay"][key + 1 : query + 1, group].prod())}
    if "beta" in forgetting:
        held["beta"] = float(forgetting["beta"][key, group])
    if hasattr(kernel, "dt"):
        held["step size"] = float(kernel.dt[0, key, group])
    return held


def _component_states(trace: Trace, stack: str, chain: Sequence[MixedBlock]) -> tuple[list[str], Tensor]:
    """Return the input of the last of some blocks, split by writer [part, token, width]."""
    numbers = trace.mixing_layers(stack)
    layers = captured(trace, stack, NAME, mixing=True).layers
    states = [exact(layers[number].hidden[0]) for number in numbers[: len(chain)]]
    named = input_parts(trace, stack, states[0])
    names, parts = [name for name, _ in named], [part for _, part in named]
    for number, block, (read, following) in zip(numbers, chain, pairwise(states), strict=False):
        if not (block.is_pre_norm and _is(block, block.hidden, read) and _is(block, block.output, following)):
            names, parts = [f"block {number}"], [following]
            continue
        mixed = block.output_scale * exact(block.total(range(len(read)), constant=True))
        parts = [part * (block.output_scale * block.residual_scale) for part in parts]
        rest = following - torch.stack(parts).sum(0) - mixed
        names += [f"mixing {number}", f"MLP {number}"]
        parts += [mixed, rest]
    return names, torch.stack(parts)


def _is(block: MixedBlock, states: Tensor, others: Tensor) -> bool:
    """Return whether states [1, token, width] of a block are others [token, width]."""
    error = (exact(states[0]) - others).norm()
    return bool(error <= tolerance(block.precision) * others.norm())
