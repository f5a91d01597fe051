"""SAEs, states and folders made by hand for the tests of this folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import attnwidgets as aw

FIXTURES = Path(__file__).parent / "fixtures"
SITE = "blocks.1.hook_resid_post"
TEXTS = ("the cat sat.", "new york, the cat!", "unbelievable cats sat a b c", "don't the new cat sat.")
CORPUS = [*TEXTS, "", "a b c " * 30, "the cats, the cats! the unbelievable cats."] * 3


def weights(d_in: int = 8, d_sae: int = 20, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights with directions of different lengths."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "W_enc": draw(d_in, d_sae) / d_in**0.5,
        "W_dec": draw(d_sae, d_in) * (0.2 + torch.rand(d_sae, 1, generator=generator)),
        "b_dec": 0.3 * draw(d_in),
        "b_enc": 0.2 * draw(d_sae) - 0.3,
        "threshold": 0.5 * draw(d_sae).abs(),
        "b_gate": 0.2 * draw(d_sae),
        "b_mag": 0.2 * draw(d_sae),
        "r_mag": 0.3 * draw(d_sae),
    }


PARAMETERS = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
}


def sae(architecture: str = "standard", d_in: int = 8, d_sae: int = 20, seed: int = 0, **options) -> aw.SAE:
    drawn = weights(d_in, d_sae, seed)
    parameters = {name: drawn[name] for name in PARAMETERS[architecture]}
    if architecture == "topk":
        options = {"k": 5} | options
    return aw.SAE(
        drawn["W_enc"], drawn["W_dec"], drawn["b_dec"], **parameters, architecture=architecture, **options
    )


class StopError(Exception):
    """Ends a stream of texts in the middle."""


def interrupted(texts, after: int):
    for number, text in enumerate(texts):
        if number == after:
            raise StopError
        yield text


def content(stats: aw.results.FeatureStats) -> str:
    """A digest of all that statistics hold, to the last bit."""
    described, arrays = stats.to_description()
    digest = hashlib.sha256(json.dumps(described | {"trace_id": ""}, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def states(tokens: int = 30, d_in: int = 8, seed: int = 5) -> torch.Tensor:
    return 2 * torch.randn(tokens, d_in, generator=torch.Generator().manual_seed(seed)) + 0.4


def fitted(model, tokenizer, site: str, *, rank: int = 10, d_sae: int = 64, texts=TEXTS, **options) -> aw.SAE:
    """An SAE that explains a model's states, along their principal components; other features are dead."""
    from attnwidgets.sae.check import read_states
    from attnwidgets.sae.corpus import Corpus
    from attnwidgets.tracing.hooks.hook_point import resolve_hook_point
    from attnwidgets.tracing.recording.borrow import borrowed

    with borrowed(model) as twin:
        corpus = Corpus(model, tokenizer, texts)
        h = torch.cat(
            [result for result, _ in read_states(twin, corpus, resolve_hook_point(model, site))]
        ).float()
    components = torch.linalg.svd(h - h.mean(0), full_matrices=False).Vh[:rank]
    directions = torch.zeros(d_sae, h.shape[-1])
    directions[: 2 * rank] = torch.cat([components, -components])
    bias = torch.zeros(d_sae)
    bias[2 * rank :] = -1.0
    return aw.SAE(directions.T.contiguous(), directions, h.mean(0), bias, site=site, **options)


def write_gemma_scope(folder: Path, drawn: dict, *, upper: bool = True) -> Path:
    folder.mkdir(parents=True)
    names = {"W_enc": "W_enc" if upper else "w_enc", "W_dec": "W_dec" if upper else "w_dec"}
    names_in_file = ("W_enc", "W_dec", "b_enc", "b_dec", "threshold")
    np.savez(folder / "params.npz", **{names.get(name, name): drawn[name].numpy() for name in names_in_file})
    return folder


def write_gemma_scope_2(folder: Path, drawn: dict, config: dict | None, **extra: torch.Tensor) -> Path:
    folder.mkdir(parents=True)
    names_in_file = ("W_enc", "W_dec", "b_enc", "b_dec", "threshold")
    save_file({name.lower(): drawn[name] for name in names_in_file} | extra, folder / "params.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_llama_scope(folder: Path, drawn: dict, **changes) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    save_file(
        {
            "encoder.weight": drawn["W_enc"].T.contiguous(),
            "decoder.weight": drawn["W_dec"].T.contiguous(),
            "encoder.bias": drawn["b_enc"],
            "decoder.bias": drawn["b_dec"],
        },
        folder / "checkpoints" / "final.safetensors",
    )
    d_in, d_sae = drawn["W_enc"].shape
    config = {
        "d_model": d_in,
        "d_sae": d_sae,
        "act_fn": "jumprelu",
        "hook_point_in": "blocks.1.hook_resid_post",
        "hook_point_out": "blocks.1.hook_resid_post",
        "jump_relu_threshold": 0.25,
        "dataset_average_activation_norm": {"in": 6.0, "out": 6.0},
    }
    (folder / "hyperparams.json").write_text(json.dumps(config | changes))
    return folder


def write_saelens(folder: Path, tensors: dict, config: dict) -> Path:
    folder.mkdir(parents=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "sae_weights.safetensors"
    )
    (folder / "cfg.json").write_text(json.dumps(config))
    return folder
