"""Plain implementations of the papers' equations, as a baseline: the short code that an expert would write.

Each takes a model (with eager attention) and the token ids [1, token] of one text, runs the model once and
returns the maps of all layers [layer, query, key]. Heads are summed by one contraction, a norm is no matrix,
and values are zeroed in batches. Nothing is checked, and only two families are read. The letters are the
papers'.

    f^h(x_j)    head h's output for token j: (x_j W_V^h + b_V^h) W_O^h                   [head, key, dim]
    F_ij        sum_h A^h_ij f^h(x_j), plus x_i where i = j                              [query, key, dim]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


_BATCH = 32  # of copies of a text


@dataclass
class Layer:
    """The quantities of one layer that the equations use.

    Args:
        module: The layer.
        values: Its value projection.
        x: Its input [token, dim].
        y: Its output [token, dim].
        attention: A [head, query, key].
        f: f^h(x_j) [head, key, dim].
        bias: b_O of the output projection [dim], or 0.
        norms: The norms after attention and after the feed-forward layer, in post-norm layers (BERT).
        feed_forward: In post-norm layers, computes what is added to the output of the first norm.
        run: Runs the layer again: from input [1, token, dim] to output [1, token, dim].
    """

    module: nn.Module
    values: nn.Module
    x: Tensor
    y: Tensor
    attention: Tensor
    f: Tensor
    bias: Tensor | float
    norms: tuple[nn.LayerNorm, ...]
    feed_forward: Any
    run: Any


def _heads(values: Tensor, out: nn.Linear, n_heads: int, attention: Tensor) -> Tensor:
    """Return f^h(x_j) [head, key, dim] of values [key, kv head * head dim]."""
    size = out.in_features // n_heads
    split = values.reshape(len(values), -1, size).transpose(0, 1)
    split = split.repeat_interleave(n_heads // len(split), dim=0)
    matrix = out.weight.T.reshape(len(attention), size, -1)
    return torch.matmul(split, matrix)


def bert(model: Any, ids: Tensor) -> Iterator[Layer]:
    """Yield the layers of a BERT."""
    outputs = model(ids, output_hidden_states=True, output_attentions=True)
    states, n_heads = [state[0] for state in outputs.hidden_states], model.config.num_attention_heads
    mask = torch.zeros(1, 1, 1, 1, device=ids.device)
    for number, layer in enumerate(model.encoder.layer):
        x, heads = states[number], outputs.attentions[number][0]
        values, out = layer.attention.self.value, layer.attention.output.dense
        yield Layer(
            layer,
            values,
            x,
            states[number + 1],
            heads,
            _heads(values(x), out, n_heads, heads),
            out.bias,
            (layer.attention.output.LayerNorm, layer.output.LayerNorm),
            lambda h, layer=layer: layer.output.dense(layer.intermediate(h)),
            lambda hidden, layer=layer: _first(layer(hidden, attention_mask=mask)),
        )


def llama(model: Any, ids: Tensor) -> Iterator[Layer]:
    """Yield the layers of a Llama."""
    inner, n_heads = model.model, model.config.num_attention_heads
    outputs = inner(ids, output_hidden_states=True, output_attentions=True, use_cache=False)
    states, n = [state[0] for state in outputs.hidden_states], ids.shape[1]
    rotary = inner.rotary_emb(states[0][None], torch.arange(n, device=ids.device)[None])
    lowest = torch.finfo(states[0].dtype).min
    mask = torch.full((n, n), lowest, device=ids.device).triu(1)[None, None]
    for number, layer in enumerate(inner.layers):
        x, heads = states[number], outputs.attentions[number][0]
        values, out = layer.self_attn.v_proj, layer.self_attn.o_proj

        def run(hidden: Tensor, layer: Any = layer) -> Tensor:
            return _first(layer(hidden, attention_mask=mask, position_embeddings=rotary))

        # The last reported hidden state comes after the final norm.
        y = states[number + 1] if number + 1 < len(inner.layers) else run(x[None])[0]
        f = _heads(values(layer.input_layernorm(x)), out, n_heads, heads)
        yield Layer(layer, values, x, y, heads, f, 0.0, (), None, run)


def _first(output: Any) -> Tensor:
    tensor: Tensor = output if isinstance(output, torch.Tensor) else output[0]
    return tensor


def layers_of(model: Any, ids: Tensor) -> Iterator[Layer]:
    """Yield the layers of a BERT or a Llama."""
    return bert(model, ids) if hasattr(model, "encoder") else llama(model, ids)


def _vectors(layer: Layer, *, residual: bool = True) -> Tensor:
    """Return F_ij [query, key, dim]."""
    summed = torch.einsum("hij,hjd->ijd", layer.attention, layer.f)
    if residual:
        diagonal = torch.arange(len(layer.x))
        summed[diagonal, diagonal] += layer.x
    return summed


def _attended(layer: Layer) -> Tensor:
    """Return what enters the first norm, or the feed-forward layer [token, dim]."""
    return layer.x + torch.einsum("hij,hjd->id", layer.attention, layer.f) + layer.bias


def _normed(parts: Tensor, whole: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Return parts [query, key, dim] after a norm with the deviation of `whole` [query, dim], no bias."""
    deviation = torch.sqrt(whole.var(-1, unbiased=False) + norm.eps)
    return (parts - parts.mean(-1, keepdim=True)) / deviation[:, None, None] * norm.weight


def attention_norm(model: Any, ids: Tensor, variant: str) -> Tensor:
    """Kobayashi et al. 2020 ("attn"), 2021 ("res", "res_ln"), Modarressi et al. 2022 ("enc")."""
    maps = []
    for layer in layers_of(model, ids):
        parts = _vectors(layer, residual=variant != "attn")
        if variant in ("res_ln", "enc"):
            norm1, norm2 = layer.norms
            z = _attended(layer)
            parts = _normed(parts, z, norm1)
            if variant == "enc":
                h = norm1(z)
                parts = _normed(parts, h + layer.feed_forward(h), norm2)
        maps.append(parts.norm(dim=-1))
    return torch.stack(maps)


def globenc(model: Any, ids: Tensor) -> Tensor:
    """Modarressi et al. 2022, equation 9 and its product over the layers."""
    maps = list(attention_norm(model, ids, "enc"))
    for number in range(1, len(maps)):
        maps[number] = maps[number] @ maps[number - 1]
    return torch.stack(maps)


def alti(model: Any, ids: Tensor) -> Tensor:
    """Ferrando et al. 2022, equations 5 to 10."""
    maps = []
    for layer in layers_of(model, ids):
        parts, y = _vectors(layer), _attended(layer)
        if layer.norms:
            parts, y = _normed(parts, y, layer.norms[0]), layer.norms[0](y)
        distance = (y[:, None] - parts).abs().sum(-1)
        near = torch.clamp(y.abs().sum(-1, keepdim=True) - distance, min=0)
        maps.append(near / near.sum(-1, keepdim=True))
    return torch.stack(maps)


def value_zeroing(model: Any, ids: Tensor) -> Tensor:
    """Mohebbi et al. 2023, section 3: every layer from its real input, each token's value zeroed in turn."""
    maps = []
    for layer in layers_of(model, ids):
        n = len(layer.x)
        distances = torch.zeros(n, n, dtype=torch.float64, device=ids.device)
        for tokens in torch.arange(n).split(_BATCH):

            def zero(_: Any, __: Any, values: Tensor, tokens: Tensor = tokens) -> Tensor:
                values[torch.arange(len(tokens)), tokens] = 0
                return values

            handle = layer.values.register_forward_hook(zero)
            without = layer.run(layer.x.expand(len(tokens), -1, -1))
            handle.remove()
            near = functional.cosine_similarity(without.double(), layer.y.double(), dim=-1)
            distances[:, tokens] = 1 - near.T
        maps.append(distances / distances.sum(-1, keepdim=True))
    return torch.stack(maps)
