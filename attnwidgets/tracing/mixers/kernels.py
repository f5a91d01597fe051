"""Kernels by which modules mix positions without a softmax, as matrices alpha [group, query, position].

Every kernel is linear in its values: its output for query i is the sum over positions k of alpha[g, i, k]
times the values of position k, for each group g of channels (a head, or a single channel). A position need
not be a token: a short convolution in front of the kernel may have mixed several tokens already.
Rows are computed on demand, in float64. Gates that belong to the recurrence (decay, beta) are inside alpha: a
token between k and i that erases the value of k makes alpha[g, i, k] smaller, and has no separate column.

`Kernel` is the interface. Here are the kernels without a state; `recurrences.py` has those with one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from attnwidgets.tracing.anatomy.blocks import DIFFERENTIAL
from attnwidgets.tracing.layers import SoftmaxLayer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from typing_extensions import Self

    from attnwidgets.tracing.layers import FollowedLayer, RecordedLayer
    from attnwidgets.tracing.mixers.chains import Chain
    from attnwidgets.tracing.recording.calls import Call, FollowedCall


@dataclass(frozen=True)
class Kernel:
    """A kernel with the arguments of a call.

    Tensors have the axes [batch, position, ...], but for those named in `static`, which hold for all
    positions.
    """

    static: ClassVar[frozenset[str]] = frozenset()
    kind: ClassVar[str] = ""
    has_state: ClassVar[bool] = True
    """Whether a state carries values to later positions, so that weights are chains of steps."""

    @property
    def n_groups(self) -> int:
        """Number of heads, or of channels if each has a separate kernel."""
        raise NotImplementedError

    @property
    def is_causal(self) -> bool:
        """Whether no query reads a later position."""
        return True

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [group, query, position] of the first sample, float64.

        Args:
            queries: Positions, ascending. Columns end with the last of them in a kernel that `is_causal`.
        """
        raise NotImplementedError

    def forgetting(self) -> dict[str, Tensor]:
        """Return the changes of the state at each position, by name [position, group]; {} for none.

        "decay" is the factor by which the state is multiplied, "beta" the part of a key's old value that is
        replaced.
        """
        return {}

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how alpha[group, query, key] comes about, in a kernel that `has_state`.

        Args:
            group: Number of the head or channel.
            query: The position that reads.
            key: The position that is read, not after the query.
        """
        raise NotImplementedError

    def sides(self) -> tuple[Tensor, Tensor] | None:
        """Return queries and keys [position, group, dim] of the first sample; None without them.

        alpha[g, i, k] is the product of key k with query i as `carried` to it, but for a skip connection.
        """
        return None

    def carried(self, queries: Tensor, group: int, query: int, key: int) -> Tensor:
        """Return queries [part, dim] as they meet a key, after decay and erasing, float64.

        The result is linear in them: decays, step sizes, and the other keys' erasing are as recorded.

        Args:
            queries: Parts of the query at `query`.
            group: Number of the head.
            query: The position that reads.
            key: The position that is read, not after the query.
        """
        raise NotImplementedError

    def cut(self, sample: int, length: int) -> Self:
        """Return the kernel of a sample without its padding, with a batch of 1."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {
            name: value.detach() if name in self.static else value.detach()[sample : sample + 1, :length]
            for name, value in values.items()
            if isinstance(value, torch.Tensor)
        }
        return replace(self, **tensors)


def causal(queries: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return query positions [query, 1], and which positions they read, up to the last [query, position]."""
    at = torch.tensor(list(queries), device=device)[:, None]
    steps = torch.arange(int(at.max()) + 1, device=device)
    return at, steps <= at


@dataclass(frozen=True)
class Identity(Kernel):
    """No kernel: a convolution alone mixes the tokens (LFM2)."""

    kind: ClassVar[str] = "convolution"
    has_state: ClassVar[bool] = False

    like: Tensor

    @property
    def n_groups(self) -> int:
        """A single group has all channels."""
        return 1

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return ones where position and query are equal."""
        at, read = causal(queries, self.like.device)
        return (torch.arange(read.shape[1], device=at.device) == at).double()[None]


@dataclass(frozen=True)
class AttentionWeights(Kernel):
    """Softmax attention of a recorded call: alpha is its weights."""

    kind: ClassVar[str] = "attention"
    has_state: ClassVar[bool] = False

    call: Call | FollowedCall
    sample: int
    length: int

    @property
    def _layer(self) -> RecordedLayer | FollowedLayer:
        return self.call.layer(self.sample, self.length, self.length)

    @property
    def n_groups(self) -> int:
        """Number of heads."""
        return self.call.shape[1]

    @property
    def is_causal(self) -> bool:
        """Whether the mask certainly hides all later keys."""
        layer = self._layer
        return isinstance(layer, SoftmaxLayer) and layer.hides_later_keys()

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of the weights [head, query, key]."""
        weights = torch.from_numpy(self._layer.weights(None, list(queries)).copy()).double()
        return weights[..., : max(queries) + 1] if self.is_causal else weights

    def cut(self, sample: int, length: int) -> Self:
        """Return the weights of a sample without its padding."""
        return replace(self, sample=sample, length=length)


@dataclass(frozen=True)
class DifferentialAttention(AttentionWeights):
    """Heads that are the difference of two softmaxes: alpha is signed.

    A head takes a multiple of head i + heads / 2 of the call from head i (Ye et al. 2024, Differential
    Transformer, equation 1, with halves of the heads instead of halves of queries and keys).

    Attributes:
        factor: The factor of the second softmax, -lambda.
    """

    kind: ClassVar[str] = DIFFERENTIAL

    factor: float

    @property
    def n_groups(self) -> int:
        """Number of differences."""
        return super().n_groups // 2

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of the differences [head, query, key]."""
        first, second = super().rows(queries).chunk(2)
        return first + self.factor * second


@dataclass(frozen=True)
class Joined(Kernel):
    """Kernels of a module that mix separate channels, joined (Zamba's Mamba heads)."""

    static: ClassVar[frozenset[str]] = frozenset({"parts"})

    parts: tuple[Kernel, ...]

    @property
    def n_groups(self) -> int:
        """Number of groups of all kernels."""
        return sum(part.n_groups for part in self.parts)

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [group, query, position]."""
        return torch.cat([part.rows(queries) for part in self.parts])

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how a weight of the kernel that has a group comes about."""
        for part in self.parts:
            if group < part.n_groups:
                return part.chain(group, query, key)
            group -= part.n_groups
        raise IndexError(f"group {group} is out of range")

    def forgetting(self) -> dict[str, Tensor]:
        """Return the decay and beta of all kernels."""
        by_part = [part.forgetting() for part in self.parts]
        return {name: torch.cat([part[name] for part in by_part], 1) for name in by_part[0]}

    def cut(self, sample: int, length: int) -> Joined:
        """Return the kernels of a sample without its padding."""
        return Joined(tuple(part.cut(sample, length) for part in self.parts))
