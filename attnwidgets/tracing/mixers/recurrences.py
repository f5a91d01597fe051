"""Kernels with a state, which is carried from position to position: scans, delta rules, linear attention.

Each is a dataclass of the arguments of its call: `rows` computes its matrix alpha, `chain` how a single
weight comes about, `sides` and `carried` its queries and keys, `forgetting` the changes of its state. They
compute in float64: exponents of cumulated decays reach thousands, where float32 is coarse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import logsigmoid, softplus

from attnwidgets.tracing.mixers.chains import Chain, faded, followed
from attnwidgets.tracing.mixers.kernels import Kernel, causal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


_NORM_EPS = 1e-6  # of the l2 norm of queries and keys in transformers' delta rules


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
        at, read = causal(queries, self.dt.device)
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
        at, read = causal(queries, self.dt.device)
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
        at, read = causal(queries, self.beta.device)
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
        at, read = causal(queries, self.query.device)
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
        at, read = causal(queries, self.gate.device)
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
        at, read = causal(queries, self.key.device)
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
        at, read = causal(queries, self.query.device)
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
