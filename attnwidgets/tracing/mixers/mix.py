"""The output of a module that mixes tokens, as a sum over tokens: exact, for any kernel.

With alpha the kernel [group, query, position] and g(c) the group of channel c, token j adds to token i the
vector

    F_ij = (row_i * sum over d of alpha[g, i, j + d] * act_{j+d} * taps[d, j]) matrix          [dim]

taps[d, j] is the contribution of token j to the value at position j + d: with a short convolution for several
d, else for d = 0. act is the activation after the convolution and row the steps after the kernel (a gate, a
norm), both fixed at their real values, as factors of each channel; matrix is the output projection. Biases of
the convolution and of the projection belong to no token; together with the sum over j they give the module's
output. The bias of the values is part of them. Softmax attention has this form, too, with one tap and no
act.

Activations and gates are read off the numbers of the pass, as quotients, so that no norm or gate needs a
description. A channel that is exactly zero has no quotient, and counts as closed.

Ali et al. 2024, The Hidden Attention of Mamba Models; Zimerman et al. 2024, Explaining Modern Gated-Linear
RNNs via a Unified Implicit Attention Formulation; MambaLRP (Rezaei Jafari et al. 2024) fixes the same
factors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.steps import read_affine, read_norm
from attnwidgets.tracing.anatomy.blocks import overlap
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.mixers.kernels import Kernel

_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}
_HALF_TOLERANCE = 5e-2


@dataclass(frozen=True)
class Convolution:
    """A short causal convolution of each channel, in front of a kernel.

    Args:
        states: Its input [batch, token, channel].
        weight: [channel, tap]; the last tap reads the token itself.
        bias: [channel], or None.
        act: The steps between its sum and the values, as a factor [batch, position, channel]; None for
            nothing, or for silu, x sigmoid(x), if it `is_gated`.
        is_gated: Whether its activation is silu.
    """

    states: Tensor
    weight: Tensor
    bias: Tensor | None
    act: Tensor | None
    is_gated: bool


@dataclass(frozen=True)
class Mix:
    """A call of a module that mixes tokens, for a batch.

    Args:
        path: The module's name in the model.
        kernel: Its kernel.
        values: Values of the kernel [batch, position, channel].
        mixed: Output of the kernel, after its gate if it has a gate [batch, position, channel].
        gate: A factor that the kernel applies itself [batch, position, channel], or None.
        convolution: The convolution that computed the values, or None.
        shifted: Contributions of tokens to their value and the next [tap, batch, token, channel], instead of
            a convolution (RWKV's token shift), or None.
        read: Input of the output projection [batch, position, channel].
        projection: The output projection.
        output: The module's output [batch, position, dim].
        is_centred: Whether a norm after the kernel subtracts the mean of each head.
    """

    path: str
    kernel: Kernel
    values: Tensor
    mixed: Tensor
    gate: Tensor | None
    convolution: Convolution | None
    shifted: Tensor | None
    read: Tensor
    projection: nn.Module
    output: Tensor
    is_centred: bool = False

    def cut(self, sample: int, length: int) -> Mix:
        """Return the call of a sample without its padding, with a batch of 1."""
        part = slice(sample, sample + 1), slice(length)
        convolution = self.convolution
        if convolution is not None:
            act = None if convolution.act is None else convolution.act[part]
            convolution = replace(convolution, states=convolution.states[part], act=act)
        return replace(
            self,
            kernel=self.kernel.cut(sample, length),
            values=self.values[part],
            mixed=self.mixed[part],
            gate=None if self.gate is None else self.gate[part],
            convolution=convolution,
            shifted=None if self.shifted is None else self.shifted[:, part[0], part[1]],
            read=self.read[part],
            output=self.output[part],
        )

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the vectors: float64 for a model in it, else float32."""
        return torch.float64 if self.output.dtype == torch.float64 else torch.float32

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return self.values.shape[1]

    @property
    def n_channels(self) -> int:
        """Number of channels of all groups."""
        return self.values.shape[2]

    @property
    def n_heads(self) -> int:
        """Number of heads; 1 if every channel, or none, has a separate kernel."""
        groups = self.kernel.n_groups
        return groups if groups < self.n_channels else 1

    @property
    def reach(self) -> int:
        """Number of positions that a token reaches before the kernel, its position included."""
        if self.shifted is not None:
            return len(self.shifted)
        return 1 if self.convolution is None else self.convolution.weight.shape[1]

    def _tap(self, offset: int) -> Tensor:
        """Return the parts of tokens in the position `offset` after them [token, channel], before `act`."""
        if self.shifted is not None:
            taps = self.shifted[offset, 0].to(self.dtype)
        elif self.convolution is None:
            taps = self.values[0].to(self.dtype)
        else:
            weight = self.convolution.weight[:, self.reach - 1 - offset].detach()
            taps = self.convolution.states[0].to(self.dtype) * weight.to(self.dtype)
        return self._centred(taps)

    def _centred(self, states: Tensor) -> Tensor:
        """Return values [..., channel] less the mean of each head, if a norm after the kernel is centred."""
        if not self.is_centred:
            return states
        by_head = states.unflatten(-1, (self.n_heads, -1))
        return (by_head - by_head.mean(-1, keepdim=True)).flatten(-2)

    @cached_property
    def _bias(self) -> Tensor | None:
        """The convolution's bias [channel], or None."""
        bias = None if self.convolution is None else self.convolution.bias
        return None if bias is None else self._centred(bias.detach().to(self.dtype))

    @cached_property
    def _act(self) -> Tensor | None:
        """The factor between the convolution's sum and the value [position, channel]; None for 1."""
        convolution = self.convolution
        if convolution is None:
            return None
        if not convolution.is_gated:
            return None if convolution.act is None else convolution.act[0].to(self.dtype)
        total = torch.zeros_like(self.values[0], dtype=self.dtype)
        for offset in range(min(self.reach, self.n_tokens)):
            total[offset:] += self._tap(offset)[: self.n_tokens - offset]
        return torch.sigmoid(total if self._bias is None else total + self._bias)

    @cached_property
    def _row(self) -> Tensor:
        """The steps after the kernel as a factor [position, channel]."""
        read, mixed = self.read[0].to(self.dtype), self.mixed[0].to(self.dtype)
        row = quotient(read, self._centred(mixed))
        if self.gate is None:
            return row
        # A gate that closes a channel leaves no quotient, but was recorded.
        return self.gate[0].to(self.dtype) * torch.where(read == mixed, 1.0, row)

    @cached_property
    def projected(self) -> tuple[Tensor, Tensor | None]:
        """The output projection [channel, dim] and its bias [dim] or None."""
        return read_affine(self.projection, self.n_channels, self.output.new_empty(0, dtype=self.dtype))

    def _handed(self, offset: int) -> Tensor:
        """Return the contributions of tokens `offset` before a position, after `act` [token, channel].

        Tokens whose position would lie behind the text are left out.
        """
        handed = self._tap(offset)[: self.n_tokens - offset]
        return handed if self._act is None else handed * self._act[offset:]

    def handed_by(self, tokens: Tensor) -> Tensor:
        """Return the part of the kernel's values that comes from some tokens [copy, position, channel].

        Args:
            tokens: 1 for these tokens, else 0 [copy, token].
        """
        handed = self.values.new_zeros(len(tokens), *self.values.shape[1:], dtype=self.dtype)
        for offset in range(min(self.reach, self.n_tokens)):
            chosen = tokens[:, : self.n_tokens - offset, None].to(handed)
            handed[:, offset:] += chosen * self._handed(offset)
        return handed

    def inner(self, queries: Sequence[int]) -> Tensor:
        """Return F before the output projection [query, token, channel].

        Args:
            queries: Positions, ascending. Tokens end with the last of them if the kernel is causal.
        """
        alpha = self.kernel.rows(queries).to(self.dtype)  # [group, query, position]
        groups, n_queries, length = alpha.shape
        inner = alpha.new_zeros(n_queries, length, groups, self.n_channels // groups)
        for offset in range(min(self.reach, length)):
            handed = self._handed(offset)[: length - offset].unflatten(-1, (groups, -1))
            weights = alpha[:, :, offset:].permute(1, 2, 0)[..., None]
            inner[:, : length - offset] += weights * handed
        return inner.flatten(2) * self._row[list(queries), None]

    def inner_total(self, queries: Sequence[int], *, constant: bool = False) -> Tensor:
        """Return the sum of `inner` over tokens [query, channel]; with `constant`, including biases."""
        alpha = self.kernel.rows(queries).to(self.dtype)
        groups, _, length = alpha.shape
        values = alpha.new_zeros(length, self.n_channels)
        for offset in range(min(self.reach, length)):
            values[offset:] += self._handed(offset)[: length - offset]
        if constant and self._bias is not None:
            values += self._bias if self._act is None else self._bias * self._act[:length]
        mixed = torch.einsum("gqk,kgs->qgs", alpha, values.unflatten(-1, (groups, -1)))
        return mixed.flatten(1) * self._row[list(queries)]

    def vectors(self, queries: Sequence[int]) -> Tensor:
        """Return F [query, token, dim]; see `inner`."""
        return self.inner(queries) @ self.projected[0]

    def error(self) -> float:
        """Return the largest error of the sum of F and biases at three queries, relative to the output."""
        some = sorted({0, self.n_tokens // 2, self.n_tokens - 1})
        with no_grad():
            matrix, bias = self.projected
            total = self.inner_total(some, constant=True) @ matrix
            difference = (total if bias is None else total + bias) - self.output[0, some].to(self.dtype)
            size = self.output[0].to(self.dtype).abs().max()
            return float(difference.abs().max() / size.clamp(min=torch.finfo(self.dtype).tiny))

    @cached_property
    def proved(self) -> Mix:
        """This call, verified: its vectors and biases add up to the module's output.

        Raises:
            UnsupportedModelError: If they do not.
        """
        error = self.error()
        if not error <= _TOLERANCE.get(self.output.dtype, _HALF_TOLERANCE):
            raise UnsupportedModelError(
                f"how {self.path} mixes tokens cannot be divided among them: the parts of its "
                f"{self.kernel.kind} miss its output by {error:.2g}, relative to the largest number (they do "
                "where an intervention suppresses tokens in its rows, or replaces them)"
            )
        return self


@dataclass(frozen=True)
class MixedBlock:
    """A run of a block: its input, and the vectors that its mixers add to it.

    Args:
        path: The block's name in the model.
        hidden: The states that it reads, its residual connection [batch, token, dim].
        mixes: The calls of its mixing modules.
        norms: A norm between each mixer and the sum, or None.
        scales: The factor of each mixer in the sum; () if no state of the block is the sum of `hidden` and
            its mixers.
        output: The states that it returns [batch, token, dim].
        residual_scale: The factor of `hidden` in the sum.
        output_scale: The factor of the sum in `output`, to which other parts of the block add; 0 if a norm
            follows the sum.
    """

    path: str
    hidden: Tensor
    output: Tensor
    mixes: tuple[Mix, ...]
    norms: tuple[nn.Module | None, ...]
    scales: tuple[float, ...]
    residual_scale: float = 1.0
    output_scale: float = 0.0

    def cut(self, sample: int, length: int) -> MixedBlock:
        """Return the run of a sample without its padding, with a batch of 1."""
        hidden, output = (states[sample : sample + 1, :length] for states in (self.hidden, self.output))
        mixes = tuple(mix.cut(sample, length) for mix in self.mixes)
        return replace(self, hidden=hidden, output=output, mixes=mixes)

    @property
    def is_pre_norm(self) -> bool:
        """Whether its output is the sum, or goes on adding to it; otherwise a norm follows."""
        return self.output_scale != 0

    @property
    def precision(self) -> torch.dtype:
        """The precision of its mixers' outputs; the residual connection may have another (Mamba)."""
        return self.mixes[0].output.dtype

    def in_order(self, paths: Sequence[str]) -> MixedBlock:
        """Return the run with its mixers in the order of some modules, which are theirs or around them."""

        def rank(number: int) -> int:
            path = self.mixes[number].path
            return next((at for at, name in enumerate(paths) if overlap(name, path)), len(paths))

        order = sorted(range(len(self.mixes)), key=rank)
        return replace(
            self,
            mixes=tuple(self.mixes[number] for number in order),
            norms=tuple(self.norms[number] for number in order),
            scales=tuple(self.scales[number] for number in order) if self.scales else (),
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its mixers."""
        return tuple(dict.fromkeys(mix.kernel.kind for mix in self.mixes))

    @property
    def n_heads(self) -> int:
        """Number of heads of all mixers."""
        return sum(mix.n_heads for mix in self.mixes)

    @property
    def is_causal(self) -> bool:
        """Whether no query reads a later token."""
        return all(mix.kernel.is_causal for mix in self.mixes)

    def _projected(self, number: int, queries: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the factors of a mixer's inner vectors, and its biases, up to the sum.

        Returns:
            The output projection with the linear part of the norm after it [channel, dim], a factor of each
            query [query, 1], and biases [query, dim].
        """
        mix, norm = self.mixes[number], self.norms[number]
        scale = self.scales[number] if self.scales else 1.0
        matrix, bias = mix.projected
        row = matrix.new_full((len(queries), 1), scale)
        biases = matrix.new_zeros(len(queries), matrix.shape[1]) if bias is None else bias * row
        read = None if norm is None else read_norm(norm, matrix.shape[1], matrix)
        if read is None:
            return matrix, row, biases
        row = row / read.deviation(mix.output[0, list(queries)].to(matrix))
        biases = torch.zeros_like(biases) if bias is None else read.direct(bias) * row
        return read.direct(matrix), row, biases if read.shift is None else biases + read.shift * scale

    def vectors(self, queries: Sequence[int]) -> Tensor:
        """Return the vectors that tokens add to each other [query, token, dim], without the residual.

        Args:
            queries: Positions, ascending. Tokens end with the last of them in a causal block.
        """
        parts = []
        for number, mix in enumerate(self.mixes):
            matrix, row, _ = self._projected(number, queries)
            parts.append((mix.proved.inner(queries) @ matrix) * row[:, None])
        length = max(part.shape[1] for part in parts)
        padded = [torch.nn.functional.pad(part, (0, 0, 0, length - part.shape[1])) for part in parts]
        return sum(padded[1:], padded[0])

    def head_norms(self, queries: Sequence[int], owners: tuple[Tensor, Tensor], count: int) -> Tensor:
        """Return the norms of the vectors of each head of all mixers [head, query, element], float64.

        Args:
            queries: Positions, ascending.
            owners: Tokens, and the elements that they are in [match] each, whose vectors are added.
            count: Number of elements; tokens are not added if there are as many.
        """
        norms = []
        for number, mix in enumerate(self.mixes):
            matrix, row, _ = self._projected(number, queries)
            inner = mix.proved.inner(queries)
            is_read = owners[0] < inner.shape[1]
            tokens, elements = (indices[is_read].to(inner.device) for indices in owners)
            if count != self.hidden.shape[1]:
                summed = inner.new_zeros(len(inner), count, inner.shape[2])
                inner = summed.index_add_(1, elements, inner[:, tokens])
            by_head = inner.unflatten(-1, (mix.n_heads, -1)).unbind(2)
            for head, part in zip(by_head, matrix.unflatten(0, (mix.n_heads, -1)), strict=True):
                # Of a matrix with more columns than rows, R of its QR decomposition keeps all lengths.
                narrow = part if len(part) >= part.shape[1] else torch.linalg.qr(part.T).R.T
                lengths = (head @ narrow).norm(dim=-1) * row.abs()
                norms.append(torch.nn.functional.pad(lengths, (0, count - lengths.shape[1])))
        return torch.stack(norms).double()

    def head_products(self, query: int, directions: Tensor) -> Tensor:
        """Return the products of each head's vectors for a query with directions [direction, head, token].

        Args:
            query: Its position.
            directions: [direction, dim], float64 on the CPU, as are the products.
        """
        products = []
        for number, mix in enumerate(self.mixes):
            matrix, row, _ = (part.to("cpu").double() for part in self._projected(number, [query]))
            inner = mix.proved.inner([query])[0].to("cpu").double()
            inner, by_channel = (
                part.unflatten(-1, (mix.n_heads, -1)) for part in (inner, directions @ matrix.T * row)
            )
            product = torch.einsum("nhc,dhc->dhn", inner, by_channel)
            products.append(torch.nn.functional.pad(product, (0, mix.n_tokens - len(inner))))
        return torch.cat(products, 1)

    def by_head(self, queries: Sequence[int], measure: str) -> Tensor:
        """Return how each head of all mixers mixes tokens [head, query, token]; see `aw.mixing`.

        Args:
            queries: Positions, ascending.
            measure: "norm" or "share" for norms, "signed" for shares of the update, "kernel" for alpha (the
                mean of its absolute values, if channels have separate kernels).
        """
        count = self.hidden.shape[1]
        if measure in ("norm", "share"):
            tokens = torch.arange(count)
            return self.head_norms(queries, (tokens, tokens), count)
        parts = []
        for number, mix in enumerate(self.mixes):
            if measure == "kernel":
                alpha = mix.proved.kernel.rows(queries)
                part = alpha if len(alpha) == mix.n_heads else alpha.abs().mean(0, keepdim=True)
            else:
                matrix, row, _ = self._projected(number, queries)
                update = self.total(queries, constant=True)
                # A block that adds nothing has no shares: all are zero.
                towards = (
                    quotient(update * row, update.square().sum(-1, keepdim=True).expand_as(update)) @ matrix.T
                )
                products = mix.proved.inner(queries) * towards[:, None]
                part = products.unflatten(-1, (mix.n_heads, -1)).sum(-1).permute(2, 0, 1)
            parts.append(torch.nn.functional.pad(part, (0, count - part.shape[-1])))
        return torch.cat(parts)

    def total(self, queries: Sequence[int], *, constant: bool = False) -> Tensor:
        """Return the sum of all vectors [query, dim]; with `constant`, including biases."""
        parts = []
        for number, mix in enumerate(self.mixes):
            matrix, row, biases = self._projected(number, queries)
            added = (mix.proved.inner_total(queries, constant=constant) @ matrix) * row
            parts.append(added + biases if constant else added)
        return sum(parts[1:], parts[0])


def quotient(product: Tensor, factor: Tensor) -> Tensor:
    """Return product / factor, zero where the factor is zero."""
    is_zero = factor == 0
    return torch.where(is_zero, 0.0, product / factor.masked_fill(is_zero, 1.0))
