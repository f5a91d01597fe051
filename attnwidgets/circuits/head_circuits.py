"""aw.circuits.head_circuits: a head's query-key and output-value circuits, from its weights alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.circuits.components import component_of
from attnwidgets.explanations.results.description import AxisWords
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.resolve import spell, token_id
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.blocks import tolerance
from attnwidgets.tracing.algebra.query_key import projections
from attnwidgets.tracing.algebra.steps import Norm, apply_steps
from attnwidgets.tracing.anatomy.output_heads import head_of
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.calls import Call
from attnwidgets.tracing.recording.inputs import position_table
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.anatomy.output_heads import Head
    from attnwidgets.tracing.trace import Trace

_NAME = "head_circuits"
PAPER = "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits"
_SMALL = 64  # tokens of a vocabulary that is shown whole
_TINY = 1e-12
_QK = AxisWords(
    "query", "key", "looks for", "is looked for by", "What does {} look for?", "What looks for {}?"
)
_OV = AxisWords("input", "output", "adds to", "gets from", "What does {} add to?", "What does {} get from?")


@dataclass(frozen=True, repr=False)
class HeadCircuits:
    """A head's two circuits, as weights.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        query: W_Q [width, dim].
        key: W_K [width, dim].
        value: W_V [width, dim].
        output: W_O [dim, width].
        scaling: Factor of the scores.
    """

    layer: int
    head: int
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    scaling: float
    _parts: _Parts

    @property
    def qk(self) -> Tensor:
        """W_Q W_K' [width, width]: which states read which, before rotation by position."""
        return self.query @ self.key.T

    @property
    def ov(self) -> Tensor:
        """W_V W_O [width, width]: the head's output for a state that it attends to."""
        return self.value @ self.output

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues of the OV circuit over the vocabulary, E W_V W_O U: [dim], complex, the largest first.

        Those of W_O U E W_V, which are the same: no matrix over the vocabulary is built.
        """
        middle = self._parts.unembedded(self.output, self._parts.embeddings(None)) @ self.value
        values = torch.linalg.eigvals(middle.double()).numpy()
        return values[np.argsort(-np.abs(values), kind="stable")]

    @property
    def copying(self) -> float:
        """Sum of the eigenvalues over the sum of their sizes: 1 copies the input, -1 suppresses it.

        NaN if the head writes nothing that the output reads directly.
        """
        total = float(np.abs(self.eigenvalues).sum())
        scale = float(self.output.norm() * self.value.norm())
        if total <= _TINY * max(scale, _TINY):
            return float("nan")
        return float(self.eigenvalues.sum().real / total)

    def composition(self, earlier: HeadCircuits) -> dict[str, float]:
        """Return how much of what an earlier head writes can reach the queries, keys and values of this one.

            query   |W_OV(g) W_QK(h)| / (|W_OV(g)| |W_QK(h)|)
            key     |W_OV(g) W_QK(h)'| / (|W_OV(g)| |W_QK(h)|)
            value   |W_OV(g) W_OV(h)| / (|W_OV(g)| |W_OV(h)|)

        with g the earlier head, h this one, and |.| the Frobenius norm. Rotations by position and the norm
        before this head's layer are left out.

        Args:
            earlier: A head of an earlier layer of the same model.

        Returns:
            Shares from 0 (nothing that g writes is read) to 1 by "query", "key" and "value". Independent
            random weights give about 1 / sqrt(width). NaN where a matrix is zero.

        Raises:
            ValueError: If the heads are not of states of the same width, or `earlier` is of the same layer or
                a later one.

        Source: Elhage et al. 2021, section "Composition scores".

        Example:
            >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
            >>> first, second = (aw.circuits.head_circuits(model, tokenizer, layer, 0) for layer in (0, 1))
            >>> {name: round(share, 2) for name, share in second.composition(first).items()}
            {'query': 0.0, 'key': 0.21, 'value': 0.0}
        """
        if len(self.query) != len(earlier.query):
            raise ValueError(
                f"earlier reads states of width {len(earlier.query)}, and this head {len(self.query)}: they "
                "are of different models."
            )
        if earlier.layer >= self.layer:
            raise ValueError(
                f"earlier is in layer {earlier.layer}, which does not come before layer {self.layer}: a head "
                "reads only what earlier layers write."
            )
        written = _product_norm(earlier.value, torch.eye(len(earlier.output)), earlier.output.T)
        read = _product_norm(self.query, torch.eye(self.query.shape[1]), self.key)
        passed = _product_norm(self.value, torch.eye(len(self.output)), self.output.T)
        products = {
            "query": (_product_norm(earlier.value, earlier.output @ self.query, self.key), read),
            "key": (_product_norm(earlier.value, earlier.output @ self.key, self.query), read),
            "value": (_product_norm(earlier.value, earlier.output @ self.value, self.output.T), passed),
        }
        return {
            name: product / (written * norm) if written * norm > 0 else float("nan")
            for name, (product, norm) in products.items()
        }

    def ov_tokens(self, tokens: Sequence[str | int] | None = None) -> MixingMap:
        """Return which token's logit every token raises when it is read [1, 1, read token, raised token].

        Args:
            tokens: Tokens or ids; by default the whole vocabulary, if it is small.

        Raises:
            ValueError: If the token is unknown, or the vocabulary is too large to be shown whole.
        """
        ids, axis = self._parts.chosen(tokens)
        wrote = self._parts.embeddings(ids) @ self.ov
        return self._map(self._parts.logits(wrote)[:, ids], axis, "OV circuit", _OV)

    def qk_tokens(self, tokens: Sequence[str | int] | None = None) -> MixingMap:
        """Return scores of tokens at equal positions, before the softmax [1, 1, query token, key token].

        Args:
            tokens: Tokens or ids; by default the whole vocabulary, if it is small.

        Raises:
            ValueError: If the token is unknown, or the vocabulary is too large to be shown whole.
        """
        ids, axis = self._parts.chosen(tokens)
        states = self._parts.embeddings(ids)
        return self._map(self.scaling * states @ self.qk @ states.T, axis, "QK circuit of tokens", _QK)

    def qk_positions(self, count: int = 32) -> MixingMap:
        """Return scores between positions, before the softmax [1, 1, query position, key position].

        Args:
            count: Number of positions, from 0.

        Raises:
            UnsupportedModelError: If positions are not embeddings (they are rotations, or biases).
        """
        states = self._parts.positions(count)
        axis = TokenAxis.plain([str(at) for at in range(len(states))])
        return self._map(self.scaling * states @ self.qk @ states.T, axis, "QK circuit of positions", _QK)

    def _map(self, values: Tensor, axis: TokenAxis, title: str, words: AxisWords) -> MixingMap:
        common = self._parts.provenance(title, words)
        return MixingMap(
            values.double().numpy()[None, None], query=axis, layers=[self.layer], heads=[self.head],
            causal=False, stochastic=False, **common,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<HeadCircuits of head {self.layer}.{self.head}; copying {self.copying:.2f}>"


def _product_norm(left: Tensor, middle: Tensor, right: Tensor) -> float:
    """Return the Frobenius norm of L M R' with L and R [width, dim], without building it [width, width]."""
    left, middle, right = (part.double() for part in (left, middle, right))
    square = ((left.T @ left) @ middle * (middle @ (right.T @ right))).sum()
    return float(square.clamp_min(0).sqrt())


def head_circuits(model: Any, tokenizer: Any, layer: int, head: int) -> HeadCircuits:
    """Return a head's QK circuit (attention scores) and OV circuit (outputs), from its weights alone.

        score(i, j) = x_i W_Q W_K' x_j / sqrt(dim),    writes x_j W_V W_O

    Token and position matrices are those of bare embeddings behind the layer's first norm: exact for layer 0
    of models without position embeddings, and a first look at later layers, which also read the outputs of
    earlier layers. Rotations by position (RoPE) are left out: scores are those at equal positions. The
    statistics of the final norm are left out as well.

    Args:
        model: A model that predicts tokens.
        tokenizer: Its tokenizer.
        layer: Number of the layer.
        head: Number of the head.

    Returns:
        HeadCircuits: `.copying`, `.eigenvalues`, `.composition(earlier)`, and `.ov_tokens(tokens)`,
        `.qk_tokens(tokens)` and `.qk_positions(count)`, maps that every view of maps shows.

    Raises:
        IndexError: If the head is out of range.
        UnsupportedModelError: If the projections of this family are not described; they are checked against
            the queries and keys that the model computes.

    Source: Elhage et al. 2021, sections "QK and OV circuits" and "Summarizing OV/QK matrices" (copying).

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> head = aw.circuits.head_circuits(model, tokenizer, 1, 0)
        >>> round(head.copying, 2)
        1.0
    """
    inner = unwrap(model)
    embedding = _embedding_of(inner)
    some = torch.arange(min(4, embedding.num_embeddings)).tolist()
    trace = record(model, tokenizer, input_ids=some)
    if trace.stacks != ("self",):
        raise UnsupportedModelError(f"{_NAME} reads models with one stack, not {', '.join(trace.stacks)}.")
    part = component_of(("head", layer, head), trace, "self")
    head = int(part.head or 0)  # counted from 0
    block = block_of(trace, part.layer, "self", _NAME)
    call = block.call
    if not isinstance(call, Call):
        raise UnsupportedModelError(f"{_NAME} needs queries and keys: {trace.warning}.")
    with no_grad():
        query, key = _query_key(block, call)
        value, _ = block.value_projection()
        output, _, _ = block.branch()
    group = block.n_heads // block.values.shape[0]
    dims = call.query.shape[-1], block.values.shape[-1]

    def of(matrix: Tensor, number: int, size: int) -> Tensor:
        return matrix[:, number * size : (number + 1) * size].cpu()

    scaling = call.settings.get("scaling")
    return HeadCircuits(
        part.layer,
        head,
        of(query, head, dims[0]),
        of(key, head // group, dims[0]),
        of(value, head // group, dims[1]),
        output[head].cpu(),
        float(dims[0] ** -0.5 if scaling is None else scaling),
        _Parts(trace, block, head_of(trace, "self", _NAME, len(some) - 1)),
    )


def _query_key(block: Block, call: Call) -> tuple[Tensor, Tensor]:
    """Return W_Q [width, head * dim] and W_K [width, kv head * dim], checked against those of a pass."""
    layout, like = block.layout, block.hidden
    result = projections(block, _NAME)
    read = block.norm1(like) if layout.order != "post" and block.norm1 is not None else like
    for (matrix, bias), recorded in zip(result, (call.query, call.key), strict=True):
        computed = read[:1] @ matrix if bias is None else read[:1] @ matrix + bias
        expected = recorded[0, :, 0].flatten().to(computed)  # rotations leave the first position as it is
        if not (computed[0] - expected).norm() <= tolerance(call.dtype) * expected.norm():
            raise UnsupportedModelError(
                f"{_NAME}: queries and keys of {layout.family} are not a projection of the states (a norm or "
                "a scale follows)."
            )
    return result[0][0], result[1][0]


def _embedding_of(model: Any) -> nn.Embedding:
    result: nn.Embedding = model.get_input_embeddings()
    return result


@dataclass(frozen=True)
class _Parts:
    """The parts of a model around a head: embeddings, the norm before it, and the output head.

    Attributes:
        trace: A trace of some tokens.
        block: The head's block.
        ending: The model's output head.
    """

    trace: Trace
    block: Block
    ending: Head

    def chosen(self, tokens: Sequence[str | int] | None) -> tuple[list[int], TokenAxis]:
        """Return ids, and their axis."""
        count = self._embedding().num_embeddings
        if tokens is None and count > _SMALL:
            raise ValueError(f"tokens is missing: the vocabulary has {count:,}; name some.")
        named = range(count) if tokens is None else [tokens] if isinstance(tokens, str) else tokens
        ids = [token_id(self.trace, name, "tokens") if isinstance(name, str) else int(name) for name in named]
        if any(not 0 <= index < count for index in ids):
            raise ValueError(f"tokens holds an id that is out of range: there are 0 to {count - 1}.")
        return ids, TokenAxis.plain([spell(self.trace, index) for index in ids])

    def embeddings(self, ids: list[int] | None) -> Tensor:
        """Return embeddings of tokens behind the first norm [token, width]; of all for None."""
        weight = self._embedding().weight.detach()
        return self._read(weight if ids is None else weight[ids])

    def positions(self, count: int) -> Tensor:
        """Return embeddings of positions behind the first norm [position, width]."""
        inner = unwrap(self.trace.model)
        table = position_table(inner)
        if table is None:
            raise UnsupportedModelError(
                f"{_NAME}: {type(inner).__name__} has no position embeddings (they are rotations or biases)."
            )
        embedding, first = table
        return self._read(embedding.weight.detach()[first : first + count])

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits that states [token, width] add, without the final norm's statistics."""
        with no_grad():
            for step in (*self.ending.before, *self.ending.steps):
                states = states.to(self.ending.hidden)
                if isinstance(step, Norm):
                    states = step.direct(states)
                else:  # without its bias
                    nothing = apply_steps((step,), torch.zeros_like(states[:1]))
                    states = apply_steps((step,), states) - nothing
        return states.cpu()

    def unembedded(self, output: Tensor, embeddings: Tensor) -> Tensor:
        """Return W_O U E [dim, width], over the vocabulary."""
        logits = self.logits(output)
        count = min(logits.shape[-1], len(embeddings))  # a head may have more rows than tokens
        return logits[:, :count] @ embeddings[:count]

    def provenance(self, title: str, words: AxisWords) -> dict[str, Any]:
        """Return where numbers come from."""
        facts = {"axes": words, "text": ""}
        common = provenance_of(
            self.trace, "self", "circuits.head_circuits", paper=PAPER, title=title, facts=facts
        )
        return {name: value for name, value in common.items() if name not in ("predictions", "trace_id")}

    def _embedding(self) -> nn.Embedding:
        return _embedding_of(unwrap(self.trace.model))

    def _read(self, states: Tensor) -> Tensor:
        like, norm = self.block.hidden, self.block.norm1
        if states.shape[-1] != like.shape[-1]:
            raise UnsupportedModelError(
                f"{_NAME}: embeddings are {states.shape[-1]} wide, and states {like.shape[-1]}."
            )
        states = states.to(like)
        if self.block.layout.order == "post" or norm is None:
            return states.cpu()
        with no_grad():
            return norm(states).cpu()
