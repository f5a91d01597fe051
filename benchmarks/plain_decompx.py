"""A plain implementation of DecompX, as a baseline: the equations of the paper, one after another.

Modarressi et al. 2023, section 3, on BERT, as the authors' program works: one vector for every pair of
tokens, whole tensors, no chunks. With `mix_values`, heads are mixed before their output projection instead of
after it, which gives the same numbers with fewer operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn


def _shared(vectors: Tensor, bias: Tensor) -> Tensor:
    """Return vectors [query, key, dim] with a bias distributed in proportion to |x_ij . b| (equation 9)."""
    weights = (vectors @ bias).abs()
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-12)
    return vectors + weights[..., None] * bias


def _normed(vectors: Tensor, state: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Return vectors after a norm with the deviation of the state [query, dim] (equation 10)."""
    deviation = torch.sqrt(state.var(-1, unbiased=False) + norm.eps)[:, None, None]
    return _shared((vectors - vectors.mean(-1, keepdim=True)) / deviation * norm.weight, norm.bias)


def decompx(model: Any, ids: Tensor, classifier: nn.Linear | None, *, mix_values: bool = False) -> Tensor:
    """Return signed scores [token, class] of the first token, or the lengths of the vectors in every layer.

    Args:
        model: A BERT with eager attention and a pooler.
        ids: [1, token].
        classifier: Layer that reads the pooled vector; None returns lengths [layer, query, key].
        mix_values: Mix heads as values, before the output projection.
    """
    outputs = model(ids, output_hidden_states=True, output_attentions=True)
    states, n_heads = [state[0] for state in outputs.hidden_states], model.config.num_attention_heads
    vectors, lengths = None, []
    for layer, x, heads in zip(model.encoder.layer, states, outputs.attentions, strict=False):
        weights = heads[0]
        value, out = layer.attention.self.value, layer.attention.output.dense
        norm1, norm2 = layer.attention.output.LayerNorm, layer.output.LayerNorm
        n, size = len(x), x.shape[-1] // n_heads
        matrix = out.weight.T.reshape(n_heads, size, -1)
        if vectors is None:
            f = torch.einsum("jhv,hvd->hjd", value(x).reshape(n, n_heads, size), matrix)
            added = torch.einsum("hij,hjd->ijd", weights, f)
            vectors, bias = torch.diag_embed(x.T).permute(1, 2, 0), out.bias
        else:
            values = (vectors @ value.weight.T).reshape(n, n, n_heads, size)
            if mix_values:
                mixed = torch.einsum("hik,kjhv->ijhv", weights, values)
                added = mixed.flatten(2) @ out.weight.T
            else:
                f = torch.einsum("kjhv,hvd->hkjd", values, matrix)
                added = torch.einsum("hik,hkjd->hijd", weights, f).sum(0)
            bias = out.weight @ value.bias + out.bias
        vectors = _shared(added + vectors, bias)
        z = x + out((weights @ value(x).reshape(n, n_heads, size).transpose(0, 1)).transpose(0, 1).flatten(1))
        vectors = _normed(vectors, z, norm1)
        h = norm1(z)
        before = layer.intermediate.dense(h)
        after = layer.intermediate.intermediate_act_fn(before)
        wide = _shared(vectors @ layer.intermediate.dense.weight.T, layer.intermediate.dense.bias)
        wide = wide * (after / (before + 1e-12))[:, None]
        fed = _shared(wide @ layer.output.dense.weight.T, layer.output.dense.bias)
        vectors = _normed(vectors + fed, h + layer.output.dense(after), norm2)
        lengths.append(vectors.norm(dim=-1))
    if classifier is None or vectors is None:
        return torch.stack(lengths)
    pooler = model.pooler.dense
    pooled = _shared(vectors[0] @ pooler.weight.T, pooler.bias)
    before = pooler(states[-1][0])
    pooled = pooled * (before.tanh() / (before + 1e-12))
    return _shared(pooled @ classifier.weight.T, classifier.bias)
