"""Measure norms, GlobEnc and ALTI beside a plain implementation of the papers' equations, in one run.

    python benchmarks/bench_norms.py

Both start from the same tokens on all-MiniLM-L6-v2 (and, for two of them, on SmolLM2-135M) and end with
the maps of every layer; the forward pass is included. The plain one holds a vector for every pair of
tokens, as the equations are written. Times are CPU times of this process on two threads, the best of
three; what counts is their ratio. Results are compared before anything is timed.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

MEASURES = ("attn", "res_ln", "enc", "alti")


def plain_bert(model: Any, ids: torch.Tensor, measure: str) -> np.ndarray:
    """Return a measure of every layer of a BERT [layer, query, key], with a vector for every pair."""
    outputs = model(ids, output_hidden_states=True, output_attentions=True)
    n_heads = model.config.num_attention_heads
    maps = []
    for layer, states, heads in zip(
        model.encoder.layer, outputs.hidden_states, outputs.attentions, strict=False
    ):
        x, weights = states[0], heads[0]
        out, norm1, norm2 = (
            layer.attention.output.dense,
            layer.attention.output.LayerNorm,
            layer.output.LayerNorm,
        )
        values = layer.attention.self.value(x).reshape(len(x), n_heads, -1)
        matrix = out.weight.reshape(len(out.weight), n_heads, -1)
        given = torch.einsum("hij,jhd->ijd", weights, torch.einsum("jhv,dhv->jhd", values, matrix))
        if measure != "attn":
            summed = x + given.sum(1) + out.bias
            given[range(len(x)), range(len(x))] += x
            given = norm1.weight * (given - given.mean(-1, keepdim=True)) / _deviation(summed, norm1)
            state = norm1(summed)
        if measure == "enc":
            last = state + layer.output.dense(layer.intermediate(state))
            given = norm2.weight * (given - given.mean(-1, keepdim=True)) / _deviation(last, norm2)
        if measure == "alti":
            near = (state.abs().sum(-1)[:, None] - (given - state[:, None]).abs().sum(-1)).clamp(min=0)
            maps.append(near / near.sum(-1, keepdim=True))
        else:
            maps.append(given.norm(dim=-1))
    return torch.stack(maps).numpy()


def _deviation(x: torch.Tensor, norm: torch.nn.LayerNorm) -> torch.Tensor:
    return torch.sqrt(x.var(-1, unbiased=False) + norm.eps)[:, None, None]


def plain_llama(model: Any, ids: torch.Tensor, measure: str) -> np.ndarray:
    """Return "res" or "alti" of every layer of a Llama [layer, query, key], with a vector for every pair."""
    outputs = model(ids, output_hidden_states=True, output_attentions=True, use_cache=False, logits_to_keep=1)
    n_heads = model.config.num_attention_heads
    maps = []
    for layer, states, heads in zip(
        model.model.layers, outputs.hidden_states, outputs.attentions, strict=False
    ):
        x, weights = states[0], heads[0]
        values = layer.self_attn.v_proj(layer.input_layernorm(x))
        values = values.reshape(len(x), model.config.num_key_value_heads, -1)
        values = values.repeat_interleave(n_heads // values.shape[1], dim=1)
        matrix = layer.self_attn.o_proj.weight.reshape(x.shape[-1], n_heads, -1)
        given = torch.einsum("hij,jhd->ijd", weights, torch.einsum("jhv,dhv->jhd", values, matrix))
        state = x + given.sum(1)
        given[range(len(x)), range(len(x))] += x
        if measure == "alti":
            near = (state.abs().sum(-1)[:, None] - (given - state[:, None]).abs().sum(-1)).clamp(min=0)
            maps.append(near / near.sum(-1, keepdim=True))
        else:
            maps.append(given.norm(dim=-1))
    return torch.stack(maps).numpy()


def ours(model: Any, ids: torch.Tensor, measure: str) -> np.ndarray:
    """Return the same from a new trace."""
    traced = aw.trace(model, None, ids)
    return aw.alti(traced).values if measure == "alti" else aw.attention_norm(traced, measure).values


def seconds(function: Callable[[], Any]) -> float:
    """Return the least CPU time of three calls."""
    times = []
    for _ in range(3):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


@torch.no_grad()
def compare(
    name: str, model: Any, plain: Callable[..., np.ndarray], measures: tuple[str, ...], n: int
) -> None:
    """Print one line a measure."""
    model.set_attn_implementation("eager")
    ids = torch.randint(1000, 20000, (1, n), generator=torch.Generator().manual_seed(0))
    for measure in measures:
        expected, found = plain(model, ids, measure), ours(model, ids, measure)
        off = float(np.abs(found - expected).max() / np.abs(expected).max())
        if not off < 1e-3:
            raise SystemExit(f"{name} {measure} differs by {off:.2g}")
        there, here = (
            seconds(lambda m=measure: plain(model, ids, m)),
            seconds(lambda m=measure: ours(model, ids, m)),
        )
        print(
            f"| {name} | {n} | {measure} | {there:.3f} | {here:.3f} | {there / here:.1f} | {off:.0e} |",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    torch.set_num_threads(2)
    print("| model | tokens | measure | plain, s | attnwidgets, s | times faster | largest difference |")
    print("|---|---|---|---|---|---|---|")
    encoder, decoder = aw.demo_model("encoder")[0], aw.demo_model("decoder")[0]
    for n in (32, 64, 128, 256):
        compare("MiniLM", encoder, plain_bert, MEASURES, n)
    for n in (64, 128):
        compare("SmolLM2", decoder, plain_llama, ("res", "alti"), n)


if __name__ == "__main__":
    main()
