"""Kernels by which modules mix positions without a softmax, as matrices alpha [group, query, position].

Every kernel is linear in its values: its output for query i is the sum over positions k of alpha[g, i, k]
times the values of position k, for each group g of channels (a head, or a single channel). A position need
not be a token: a short convolution in front of the kernel may have mixed several tokens already.
Rows are computed on demand, in float64: exponents of cumulated decays reach thousands, where float32 is
coarse. Gates that belong to the recurrence (decay, beta) are inside alpha: a token between k and i that
erases the value of k makes alpha[g, i, k] smaller, and has no separate column.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import logsigmoid, softplus

from attnwidgets.tracing.anatomy.blocks import DIFFERENTIAL
from attnwidgets.tracing.layers import SoftmaxLayer
from attnwidgets.tracing.mixers.chains import Chain, faded, followed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from typing_extensions import Self

    from attnwidgets.tracing.layers import FollowedLayer, RecordedLayer
    from attnwidgets.tracing.recording.calls import Call, FollowedCall

_NORM_EPS = 1e-6  # of the l2 norm of queries and keys in transformers' delta rules


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


def _causal(queries: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
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
        at, read = _causal(queries, self.like.device)
        return (torch.arange(read.shape[1], device=at.device) == at).double()[None]


@dataclass(frozen=True)
class SelectiveScan(Kernel):
    """Mamba's scan (Gu and Dao 2023, equation 2), channel by channel.

    alpha[c, i, k] = sum over N of C_i exp(A_c sum of dt_c over (k, i]) B_k dt_ck, and D_c on the diagonal.

    Args:
        dt: Step sizes, after their bias and softplus [batch, position, channel].
        b, c: Input and output projections of the state [batch, position, state].
        a: Decay rates, negative [channel, state].
        d: Skip connection [channel], or None.
    """

    static: ClassVar[frozenset[str]] = frozenset({"a", "d"})
    kind: ClassVar[str] = "selective scan"

    dt: Tensor
    b: Tensor
    c: Tensor
    a: Tensor
    d: Tensor | None

    @property
    def n_groups(self) -> int:
        """Number of channels."""
        return self.dt.shape[2]

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [channel, query, position]."""
        at, read = _causal(queries, self.dt.device)
        dt, b, c, a = self.dt[0].double(), self.b[0].double(), self.c[0].double(), self.a.double()
        alpha = dt.new_zeros(self.n_groups, *read.shape)
        # The vector by which a query reads the state, followed back through decay [query, channel, state].
        reads = dt.new_zeros(len(at), *a.shape)
        for step in reversed(range(read.shape[1])):
            reads[at[:, 0] == step] = c[step]
            alpha[:, :, step] = ((reads @ b[step]) * dt[step]).T
            reads *= (a * dt[step, :, None]).exp()
        if self.d is not None:
            alpha[:, range(len(at)), at[:, 0]] += self.d.double()[:, None]
        return alpha

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how a weight comes about; every component of the state has a separate rate."""
        dt = self.dt[0, :, group].double()
        decays = (self.a[group].double() * dt[key + 1 : query + 1, None]).exp()
        written = self.b[0, key].double() * dt[key]
        skip = _skip(self.d, group) if key == query else 0.0
        return followed("C · Δ B", self.c[0, query].double(), written, decays, key + 1, skip=skip)

    def forgetting(self) -> dict[str, Tensor]:
        """Return the decay of each channel's state, averaged over its components."""
        return {"decay": (self.a.double() * self.dt[0].double()[..., None]).exp().mean(-1)}


@dataclass(frozen=True)
class ChunkedScan(Kernel):
    """Mamba 2's scan (Dao and Gu 2024, section 6), head by head.

    alpha[h, i, k] = (C_i . B_k) exp(A_h sum of dt_h over (k, i]) dt_hk, and D_h on the diagonal.

    Args:
        dt: Step sizes, after bias, softplus and limits [batch, position, head].
        b, c: Projections of the state [batch, position, group, state]; groups of heads share them.
        a: Decay rates, negative [head].
        d: Skip connection [head], or None.
    """

    static: ClassVar[frozenset[str]] = frozenset({"a", "d"})
    kind: ClassVar[str] = "Mamba 2"

    dt: Tensor
    b: Tensor
    c: Tensor
    a: Tensor
    d: Tensor | None

    @property
    def n_groups(self) -> int:
        """Number of heads."""
        return self.dt.shape[2]

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [head, query, position]."""
        at, read = _causal(queries, self.dt.device)
        dt = self.dt[0, : read.shape[1]].double()
        total = (self.a.double() * dt).cumsum(0).T  # [head, position]
        exponents = total[:, at[:, 0], None] - total[:, None]
        decay = exponents.masked_fill(~read, -torch.inf).exp()
        shared = self.n_groups // self.b.shape[2]
        products = torch.einsum(
            "qgn,kgn->gqk", self.c[0, at[:, 0]].double(), self.b[0, : read.shape[1]].double()
        )
        alpha = products.repeat_interleave(shared, 0) * decay * dt.T[:, None]
        if self.d is not None:
            alpha[:, range(len(at)), at[:, 0]] += self.d.double()[:, None]
        return alpha

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how a weight comes about."""
        dt = self.dt[0, :, group].double()
        shared = group // (self.n_groups // self.b.shape[2])
        start = self.c[0, query, shared].double() @ self.b[0, key, shared].double() * dt[key]
        factors = (self.a[group].double() * dt[key + 1 : query + 1]).exp()
        return faded("C · Δ B", start, factors, key + 1, skip=_skip(self.d, group) if key == query else 0.0)

    def sides(self) -> tuple[Tensor, Tensor]:
        """Return C and B of every head."""
        shared = self.n_groups // self.b.shape[2]
        return self.c[0].repeat_interleave(shared, 1), self.b[0].repeat_interleave(shared, 1)

    def carried(self, queries: Tensor, group: int, query: int, key: int) -> Tensor:
        """Return parts of C at the key: they fade, and the key counts by its step size."""
        dt = self.dt[0, key : query + 1, group].double()
        return queries * ((self.a[group].double() * dt[1:].sum()).exp() * dt[0])

    def forgetting(self) -> dict[str, Tensor]:
        """Return the decay of each head's state."""
        return {"decay": (self.a.double() * self.dt[0].double()).exp()}


@dataclass(frozen=True)
class GatedDeltaRule(Kernel):
    """The delta rule with decay, also Kimi's (Yang et al. 2024, Gated Delta Networks, equation 10), by heads.

    The state S becomes e^g S, and then the value that its key k reads is replaced by the share beta of the
    new value: S + beta k (v - k S). A query reads q S. Followed back from query i, r = q_i:
    alpha[h, i, k] = beta_k (k_k . r), and then r becomes e^{g_k} (r - alpha[h, i, k] k_k).

    Args:
        query, key: [batch, position, head, dim], normalised and scaled.
        decay: g, logarithms [batch, position, head, 1], or for each component of keys (Kimi).
        beta: [batch, position, head].
    """

    kind: ClassVar[str] = "gated delta rule"

    query: Tensor
    key: Tensor
    decay: Tensor
    beta: Tensor

    @property
    def n_groups(self) -> int:
        """Number of heads."""
        return self.beta.shape[2]

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [head, query, position]."""
        at, read = _causal(queries, self.beta.device)
        # [position, head, ...]: a step back is one product for all queries.
        query, key, beta = self.query[0].double(), self.key[0].double(), self.beta[0].double()
        decay = self.decay[0].double().exp()
        alpha = beta.new_zeros(self.n_groups, *read.shape)
        reads = beta.new_zeros(len(at), *key.shape[1:])
        for step in reversed(range(read.shape[1])):
            reads[at[:, 0] == step] = query[step]
            written = (reads * key[step]).sum(-1) * beta[step]  # [query, head]
            alpha[:, :, step] = written.T
            reads = (reads - written[..., None] * key[step]) * decay[step]
        return alpha

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how a weight comes about: the value fades, and overlapping keys erase a part of it."""
        keys, beta = self.key[0, :, group].double(), self.beta[0, :, group].double()
        passed = slice(key + 1, query + 1)
        return followed(
            "q · β k",
            self.query[0, query, group].double(),
            beta[key] * keys[key],
            self.decay[0, passed, group].double().exp(),
            key + 1,
            erasing=(keys[passed], beta[passed]),
        )

    def sides(self) -> tuple[Tensor, Tensor]:
        """Return queries and keys."""
        return self.query[0], self.key[0]

    def carried(self, queries: Tensor, group: int, query: int, key: int) -> Tensor:
        """Return parts of a query at the key: keys between erase, all fades, and the key is written."""
        keys, beta = self.key[0, :, group].double(), self.beta[0, :, group].double()
        decay = self.decay[0, :, group].double().exp()
        for step in range(query, key, -1):
            erased = (queries @ keys[step])[:, None] * (beta[step] * keys[step])
            queries = (queries - erased) * decay[step]
        return queries * beta[key]

    def forgetting(self) -> dict[str, Tensor]:
        """Return the decay of each head's state, averaged over the components of keys, and beta."""
        return {"decay": self.decay[0].double().exp().mean(-1), "beta": self.beta[0].double()}


@dataclass(frozen=True)
class LinearAttention(Kernel):
    """Linear attention with decay (Katharopoulos et al. 2020), in MiniMax a fixed decay (Qin et al. 2024).

    alpha[h, i, k] = (q_i . k_k) exp(sum of the decay of (k, i]).

    Args:
        query, key: [batch, position, head, dim], the query scaled.
        decay: Logarithms [batch, position, head].
    """

    kind: ClassVar[str] = "linear attention"

    query: Tensor
    key: Tensor
    decay: Tensor

    @property
    def n_groups(self) -> int:
        """Number of heads."""
        return self.query.shape[2]

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [head, query, position]."""
        at, read = _causal(queries, self.query.device)
        total = self.decay[0, : read.shape[1]].double().cumsum(0).T  # [head, position]
        exponents = total[:, at[:, 0], None] - total[:, None]
        decay = exponents.masked_fill(~read, -torch.inf).exp()
        query, key = self.query[0, at[:, 0]].double(), self.key[0, : read.shape[1]].double()
        return torch.einsum("qhd,khd->hqk", query, key) * decay

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how a weight comes about."""
        start = self.query[0, query, group].double() @ self.key[0, key, group].double()
        return faded("q · k", start, self.decay[0, key + 1 : query + 1, group].double().exp(), key + 1)

    def sides(self) -> tuple[Tensor, Tensor]:
        """Return queries and keys."""
        return self.query[0], self.key[0]

    def carried(self, queries: Tensor, group: int, query: int, key: int) -> Tensor:
        """Return parts of a query at the key, which fade."""
        return queries * self.decay[0, key + 1 : query + 1, group].double().sum().exp()

    def forgetting(self) -> dict[str, Tensor]:
        """Return the decay of each head's state."""
        return {"decay": self.decay[0].double().exp()}


@dataclass(frozen=True)
class GatedRecurrence(Kernel):
    """RG-LRU (De et al. 2024, Griffin, equation 4): alpha[c, i, k] is the product of the gates of (k, i].

    Args:
        gate: [batch, position, channel], 0 to 1.
        reset: Where the state starts anew [batch, position, 1].
    """

    kind: ClassVar[str] = "recurrence"

    gate: Tensor
    reset: Tensor

    @property
    def n_groups(self) -> int:
        """Number of channels."""
        return self.gate.shape[2]

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [channel, query, position]."""
        at, read = _causal(queries, self.gate.device)
        length = read.shape[1]
        # The smallest float64 stands for zero: logarithms of products stay finite.
        smallest = torch.finfo(torch.float64).tiny
        total = self.gate[0, :length].double().clamp(min=smallest).log().cumsum(0).T
        since = self.reset[0, :length, 0].long().cumsum(0)  # positions of equal counts are in the same text
        same_text = since[at[:, 0], None] == since
        exponents = total[:, at[:, 0], None] - total[:, None]
        return exponents.masked_fill(~(read & same_text), -torch.inf).exp()

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how a weight comes about; where the state starts anew, nothing is left."""
        passed = slice(key + 1, query + 1)
        gates = self.gate[0, passed, group].double() * ~self.reset[0, passed, 0].bool()
        return faded("the value itself", gates.new_ones(()), gates, key + 1)

    def forgetting(self) -> dict[str, Tensor]:
        """Return the decay of each channel's state."""
        return {"decay": self.gate[0].double() * ~self.reset[0]}


@dataclass(frozen=True)
class TimeMix(Kernel):
    """RWKV-4's mixing over time (Peng et al. 2023, equation 14): weights that are positive and sum to 1.

    alpha[c, i, k] is the softmax over k of key_k - e^w (i - 1 - k), and of key_i + u where k = i.

    Args:
        key: [batch, position, channel].
        decay: w [channel].
        first: u [channel].
    """

    static: ClassVar[frozenset[str]] = frozenset({"decay", "first"})
    kind: ClassVar[str] = "recurrence"

    key: Tensor
    decay: Tensor
    first: Tensor

    @property
    def n_groups(self) -> int:
        """Number of channels."""
        return self.key.shape[2]

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [channel, query, position]."""
        at, read = _causal(queries, self.key.device)
        steps = torch.arange(read.shape[1], device=at.device)
        key = self.key[0, : read.shape[1]].double().T
        passed = (at - 1 - steps).clamp(min=0)
        scores = key[:, None] - self.decay.double().exp()[:, None, None] * passed
        scores = torch.where(at == steps, (key + self.first.double()[:, None])[:, None], scores)
        return scores.masked_fill(~read, -torch.inf).softmax(-1)

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how a weight comes about: the token after the key reads it before it decays."""
        keys = self.key[0, : query + 1, group].double()
        rate = self.decay[group].double().exp()
        passed = (query - 1 - torch.arange(query + 1, device=keys.device)).clamp(min=0)
        scores = keys - rate * passed
        scores[query] = keys[query] + self.first[group].double()
        largest = torch.maximum(scores.max(), keys[key])
        start = (scores[key] if key == query else keys[key]) - largest
        total = float((scores - largest).exp().sum())
        factors = (-rate).exp().expand(max(query - 1 - key, 0))
        formula = "e^(k + u - m)" if key == query else "e^(k - m)"
        return faded(formula, start.exp(), factors, key + 1, total=total)

    def forgetting(self) -> dict[str, Tensor]:
        """Return the decay of each channel's state, the same at every position."""
        return {"decay": (-self.decay.double().exp()).exp().expand(self.key.shape[1], -1)}


@dataclass(frozen=True)
class MatrixMemory(Kernel):
    """mLSTM (Beck et al. 2024, xLSTM, equations 19 to 27), head by head.

    With F the cumulated log forget gates, I the input gates and m_i the largest F_i - F_k + I_k so far:
    alpha[h, i, k] = q_i . k_k exp(F_i - F_k + I_k - m_i) / (max(|sum of the row|, exp(-m_i)) + eps).

    Args:
        query, key: [batch, position, head, dim], the query scaled.
        input_gate, forget_gate: Before their activation [batch, position, head].
        eps: Added to the denominator.
    """

    static: ClassVar[frozenset[str]] = frozenset({"eps"})
    kind: ClassVar[str] = "recurrence"

    query: Tensor
    key: Tensor
    input_gate: Tensor
    forget_gate: Tensor
    eps: float

    @property
    def n_groups(self) -> int:
        """Number of heads."""
        return self.query.shape[2]

    def rows(self, queries: Sequence[int]) -> Tensor:
        """Return rows of alpha [head, query, position]."""
        at, read = _causal(queries, self.query.device)
        length = read.shape[1]
        total = logsigmoid(self.forget_gate[0, :length].double()).cumsum(0).T  # [head, position]
        gates = self.input_gate[0, :length].double().T
        exponents = total[:, at[:, 0], None] + (gates - total)[:, None]
        exponents = exponents.masked_fill(~read, -torch.inf)
        # The state starts with a maximum of zero, which decays like all else.
        largest = torch.maximum(exponents.amax(-1), total[:, at[:, 0]])[..., None]
        query, key = self.query[0, at[:, 0]].double(), self.key[0, :length].double()
        scores = torch.einsum("qhd,khd->hqk", query, key) * (exponents - largest).exp()
        total_score = scores.sum(-1, keepdim=True).abs()
        return scores / (torch.maximum(total_score, (-largest).exp()) + self.eps)

    def chain(self, group: int, query: int, key: int) -> Chain:
        """Return how a weight comes about."""
        forget = self.forget_gate[0, : query + 1, group].double()
        gates = self.input_gate[0, : query + 1, group].double()
        total = logsigmoid(forget).cumsum(0)
        exponents = total[query] - total + gates
        # Any shift of all exponents leaves the weight as it is; this one keeps the start finite.
        shift = torch.maximum(torch.maximum(exponents.max(), total[query]), gates[key])
        products = self.key[0, : query + 1, group].double() @ self.query[0, query, group].double()
        row = (products * (exponents - shift).exp()).sum().abs()
        largest = torch.maximum(exponents.max(), total[query])
        least = torch.maximum(row, (-shift).exp())
        start = products[key] * (gates[key] - shift).exp()
        divisor = float(least + self.eps * (largest - shift).exp())
        return faded("q · k e^(i - m)", start, forget[key + 1 :].sigmoid(), key + 1, total=divisor)

    def forgetting(self) -> dict[str, Tensor]:
        """Return the decay of each head's state."""
        return {"decay": self.forget_gate[0].double().sigmoid()}


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


def _skip(d: Tensor | None, group: int) -> float:
    """Return the term of a skip connection on the diagonal of a group."""
    return 0.0 if d is None else float(d[group])


def step_sizes(dt: Tensor, bias: Tensor | None, limit: Sequence[float] = (), *, soft: bool) -> Tensor:
    """Return step sizes dt after their bias, softplus and limits, in the order in which scans apply them."""
    if bias is not None:
        dt = dt + bias
    dt = softplus(dt) if soft else dt
    return dt.clamp(*limit) if limit else dt


def normalised(states: Tensor) -> Tensor:
    """Return queries or keys [..., dim] divided by their length, as the delta rules do."""
    return states * torch.rsqrt(states.square().sum(-1, keepdim=True) + _NORM_EPS)
