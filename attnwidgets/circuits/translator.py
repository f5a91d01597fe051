"""Translator: affine maps that rewrite the states of every layer in the directions the head reads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from attnwidgets._files import write_bytes
from attnwidgets._selecting import position
from attnwidgets.sae.formats.files import read_json, read_torch
from attnwidgets.tracing.content import sampled_fingerprint_of
from attnwidgets.tracing.recording.borrow import unwrap

if TYPE_CHECKING:
    from torch import Tensor

_KEY = "attnwidgets"
_WHAT = "translator"
_PUBLISHED = ("config.json", "params.pt")


class TranslatorError(ValueError):
    """A file that holds no translator, is damaged, or belongs to another model."""


class Translator:
    """Affine maps h -> h M_l + b_l from the input of block l to the output of the last block.

    Made by `aw.circuits.fit_translator`, or opened with `Translator.load`.

    Args:
        matrices: [layer, width, width]: M_l, applied from the right.
        biases: [layer, width].
        belongs_to: Hash of some weights of the model; "" if that is not known.
        unembedding: SHA-256 of the model's output embedding, as the tuned-lens package writes it, or "".
        said: How it was made, in words.

    Raises:
        ValueError: If shapes do not match.
    """

    def __init__(
        self, matrices: Tensor, biases: Tensor, *, belongs_to: str = "", unembedding: str = "", said: str = ""
    ) -> None:
        n_layers, width = biases.shape
        if matrices.shape != (n_layers, width, width):
            raise ValueError(
                f"matrices has shape {list(matrices.shape)}; with biases {list(biases.shape)} it is "
                f"[{n_layers} layers, {width}, {width}]."
            )
        self.matrices, self.biases = matrices.float(), biases.float()
        self.belongs_to, self.unembedding, self.said = belongs_to, unembedding, said

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.biases)

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return int(self.biases.shape[1])

    def __repr__(self) -> str:
        return f"<Translator [layer {self.n_layers}, width {self.width}]; {self.said}>"

    def __call__(self, layer: int, states: Tensor) -> Tensor:
        """Return states [..., width] of a layer as the last block would write them, in their own type.

        Args:
            layer: Number of the layer whose input the states are.
            states: [..., width].

        Raises:
            IndexError: If the layer is out of range.
        """
        layer = position(layer, range(self.n_layers), "layer")
        kind = states.dtype if states.dtype == torch.float64 else torch.float32
        matrix, bias = (
            part[layer].to(device=states.device, dtype=kind) for part in (self.matrices, self.biases)
        )
        return (states.to(kind) @ matrix + bias).to(states.dtype)

    def require_model(self, model: Any, n_layers: int, width: int) -> None:
        """Raise unless the translator belongs to a model.

        Raises:
            TranslatorError: If sizes or weights are others; the message says which.
        """
        if (n_layers, width) != (self.n_layers, self.width):
            raise TranslatorError(
                f"translator has {self.n_layers} layers of width {self.width}, and the model {n_layers} of "
                f"width {width}: it belongs to another model."
            )
        inner = unwrap(model)
        if self.belongs_to and self.belongs_to != sampled_fingerprint_of(inner):
            raise TranslatorError(
                "translator was fitted on other weights than this model's; fit one: "
                "aw.circuits.fit_translator(model, tokenizer, texts)."
            )
        if self.unembedding and self.unembedding not in _hashes_of_head(inner):
            raise TranslatorError(
                "translator names another output embedding than this model's; load the model that its "
                'config.json names ("base_model_name_or_path", "base_model_revision"), in the same precision.'
            )

    def save(self, path: str | Path) -> Path:
        """Write the translator as one safetensors file, with what it belongs to.

        Args:
            path: A name that ends in .safetensors.

        Raises:
            ValueError: If it ends otherwise.
        """
        path = Path(path)
        if path.suffix != ".safetensors":
            raise ValueError(f"path {str(path)!r} must end in .safetensors.")
        facts = {name: getattr(self, name) for name in ("belongs_to", "unembedding", "said")}
        tensors = {"matrices": self.matrices.contiguous(), "biases": self.biases.contiguous()}
        write_bytes(path, save(tensors, metadata={_KEY: json.dumps({"kind": _WHAT} | facts)}))
        return path

    @classmethod
    def load(cls, path: str | Path) -> Translator:
        """Open a translator that `.save` wrote, or a folder of the tuned-lens package; no code in it is run.

        A tuned lens is a folder with `config.json` and `params.pt` (Belrose et al. 2023). Its hash of the
        output embedding is checked when the translator is used.

        Args:
            path: A .safetensors file, or such a folder.

        Raises:
            FileNotFoundError: If the file does not exist.
            TranslatorError: If it holds no translator.
            SAEFormatError: If `params.pt` would have to be unpickled.
        """
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"path {str(path)!r} does not exist.")
        return _tuned_lens(path) if path.is_dir() else _own(path)


def _own(path: Path) -> Translator:
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get(_KEY, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise TranslatorError(f"{str(path)!r} is not a saved translator ({error}).") from error
    if not isinstance(facts, dict) or facts.pop("kind", None) != _WHAT:
        raise TranslatorError(f"{str(path)!r} is not a translator; Translator.save(path) writes them.")
    try:
        return Translator(tensors["matrices"], tensors["biases"], **facts)
    except (KeyError, TypeError, ValueError) as error:
        raise TranslatorError(f"{str(path)!r} is damaged: {error}") from error


def _tuned_lens(folder: Path) -> Translator:
    """Return the translator in a folder of the tuned-lens package, whose maps are h + W_l h + b_l."""
    missing = [name for name in _PUBLISHED if not (folder / name).is_file()]
    if missing:
        raise TranslatorError(
            f"{str(folder)!r} is not a tuned lens: it lacks {' and '.join(missing)} (a tuned lens is a "
            "folder with config.json and params.pt)."
        )
    config, tensors = read_json(folder / _PUBLISHED[0]), read_torch(folder / _PUBLISHED[1])
    kind = config.get("lens_type", "linear_tuned_lens")
    try:
        width, n_layers = int(config["d_model"]), int(config["num_hidden_layers"])
        weights = torch.stack([tensors[f"{layer}.weight"] for layer in range(n_layers)]).float()
        none = torch.zeros(width)
        biases = torch.stack([tensors.get(f"{layer}.bias", none).float() for layer in range(n_layers)])
        matrices = weights.transpose(1, 2) + torch.eye(width)
        name = str(config.get("base_model_name_or_path", "an unnamed model"))
        said = f"tuned lens of {name}"
        found = Translator(matrices, biases, unembedding=str(config.get("unembed_hash") or ""), said=said)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TranslatorError(
            f"{str(folder)!r} is not a tuned lens of a known form: {error}. Its config.json names d_model "
            'and num_hidden_layers, and params.pt has "0.weight", "0.bias", "1.weight", ...'
        ) from error
    if kind != "linear_tuned_lens":
        raise TranslatorError(f"{str(folder)!r} has lens_type {kind!r}; 'linear_tuned_lens' is known here.")
    return found


def _hashes_of_head(model: Any) -> set[str]:
    """Return what the tuned-lens package writes as the hash of an output embedding.

    It hashes the weight as numpy prints it with one decimal: its corners.
    """
    head = model.get_output_embeddings()
    if head is None:
        return set()
    weight = head.weight.detach().cpu()
    kinds = (torch.float32, torch.float16)
    printed = [np.array_str(weight.to(kind).numpy(), precision=1) for kind in kinds]
    return {hashlib.sha256(text.encode()).hexdigest() for text in printed}
