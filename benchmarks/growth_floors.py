"""What steps of bench_growth.py must cost: plain torch code on the same model that does the least work.

A floor is measured in the process that measures its steps, and multiplied by how often a step needs it: a
method of 50 gradients has 50 times the floor of one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 2**20
"""Attention weights of a head that are computed together, 4 MB: what stays in a cache."""


def forward(model: Any, ids: Tensor) -> None:
    """Run the model once."""
    model(ids, use_cache=False)


def gradient(model: Any, ids: Tensor) -> None:
    """Compute the gradient of a logit with respect to the embeddings."""
    with torch.enable_grad():
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
        logits = model(inputs_embeds=embeddings, use_cache=False).logits
        torch.autograd.grad(logits[0, -1, 0], embeddings)


def row(model: Any, ids: Tensor) -> None:
    """Compute one row of attention weights of a head."""
    n, width = ids.shape[1], model.config.head_dim
    torch.softmax(torch.randn(1, width) @ torch.randn(n, width).T, dim=1)


def _reduced(model: Any, ids: Tensor, heads: int, reduce: Callable[[Tensor, int], Any]) -> None:
    """Compute the attention weights of some heads once, a block of queries at a time, and reduce each."""
    n, width = ids.shape[1], model.config.head_dim
    query, key = torch.randn(2, heads, n, width)
    rows = max(1, BLOCK // n)
    for head in range(heads):
        for first in range(0, n, rows):
            last = min(first + rows, n)
            scores = query[head, first:last] @ key[head, :last].T  # a causal model sees no later keys
            scores[:, first:].masked_fill_(torch.ones(last - first, last - first).triu(1).bool(), -torch.inf)
            reduce(torch.softmax(scores, dim=1), first)


def head(model: Any, ids: Tensor) -> None:
    """Compute the attention weights of one head."""
    _reduced(model, ids, 1, lambda weights, _: weights.numpy())


def layer(model: Any, ids: Tensor) -> None:
    """Compute the attention weights of a layer."""
    _reduced(model, ids, model.config.num_attention_heads, lambda weights, _: weights.numpy())


def reduced(model: Any, ids: Tensor) -> None:
    """Compute the attention weights of all layers, their entropy and four sums of every row."""
    keys = torch.rand(ids.shape[1], 4)

    def reduce(weights: Tensor, _: int) -> None:
        weights @ keys[: weights.shape[1]]
        torch.special.entr(weights).sum(dim=1)

    for _ in range(model.config.num_hidden_layers):
        _reduced(model, ids, model.config.num_attention_heads, reduce)


def rolled(model: Any, ids: Tensor) -> None:
    """Compute the mean of a layer's heads, and multiply two such matrices."""
    n = ids.shape[1]
    total = torch.zeros(n, n)

    def add(weights: Tensor, first: int) -> None:
        total[first : first + len(weights), : weights.shape[1]] += weights

    _reduced(model, ids, model.config.num_attention_heads, add)
    total @ total


def contributions(model: Any, ids: Tensor) -> None:
    """Compute the norm of what every token gives to every other in a layer, heads summed [query, key]."""
    n, heads, width = ids.shape[1], model.config.num_attention_heads, model.config.hidden_size
    of_heads, rows = torch.randn(heads, n, width), max(1, BLOCK * 4 // (n * width))
    for first in range(0, n, rows):
        last = min(first + rows, n)
        weights = torch.rand(heads, last - first, last)
        torch.einsum("hij,hjd->ijd", weights, of_heads[:, :last]).norm(dim=2)


def feed_forward(model: Any, ids: Tensor) -> None:
    """Compute the feed-forward layer's activation and second product for every pair of tokens of a layer."""
    n, mlp = ids.shape[1], model.model.layers[0].mlp
    hidden = torch.randn(n, model.config.intermediate_size)
    for _ in range((n + 1) // 2):  # of n² pairs a causal model reads half
        mlp.down_proj(functional.silu(hidden) * hidden)


def seconds(work: Callable[[Any, Tensor], None], model: Any, ids: Tensor) -> float:
    """Return the CPU seconds of a floor, after a run on few tokens that does not count."""
    with torch.no_grad():
        work(model, ids[:, :20])
        begin = time.process_time()
        work(model, ids)
    return time.process_time() - begin
