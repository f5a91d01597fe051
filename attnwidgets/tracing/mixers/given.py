"""Blocks of given queries, keys and values that mix tokens by a state: linear attention, the delta rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from attnwidgets.tracing.anatomy.blocks import Block, Mixer
from attnwidgets.tracing.layers import Stack
from attnwidgets.tracing.mixers.mix import Mix, MixedBlock
from attnwidgets.tracing.mixers.recurrences import GatedDeltaRule, LinearAttention

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnwidgets.tracing.mixers.kernels import Kernel
    from attnwidgets.tracing.text.units import TokenAxis

    Floats = NDArray[np.floating]

_KINDS = {"linear": "linear attention", "delta": "delta rule"}


def given_stack(
    axis: TokenAxis,
    query: Floats,
    key: Floats,
    value: Floats,
    *,
    rule: str,
    beta: Floats,
    decay: Floats,
) -> Stack:
    """Return a stack of a single block, whose output is that of its heads, side by side.

    Args:
        axis: Its tokens.
        query: Queries, scaled [head, token, dim].
        key: [head, token, dim].
        value: [head, token, d_v].
        rule: "linear" or "delta".
        beta: [token].
        decay: Factors [token].
    """
    heads = len(query)
    queries, keys, values = (torch.from_numpy(part).transpose(0, 1)[None] for part in (query, key, value))
    betas, logs = (torch.from_numpy(part).to(values)[None, :, None] for part in (beta, decay))
    logs = logs.log().expand(-1, -1, heads)
    kernel: Kernel = LinearAttention(queries, keys, logs)
    if rule == "delta":
        kernel = GatedDeltaRule(queries, keys, logs[..., None], betas.expand(-1, -1, heads))
    alpha = kernel.rows(range(values.shape[1])).to(values)
    mixed = torch.einsum("hqk,bkhd->bqhd", alpha, values).flatten(2)
    mix = Mix(
        path=rule,
        kernel=kernel,
        values=values.flatten(2),
        mixed=mixed,
        gate=None,
        convolution=None,
        shifted=None,
        read=mixed,
        projection=nn.Identity(),
        output=mixed,
    )
    # Without a residual connection: the block adds to nothing.
    block = MixedBlock(rule, torch.zeros_like(mixed), mixed, (mix,), (None,), ())
    mixer = Mixer(_KINDS[rule], rule, heads=heads, is_measured=True)
    return Stack((), axis, axis, (Block(0, rule, (mixer,), is_recorded=False),), {0: block})
