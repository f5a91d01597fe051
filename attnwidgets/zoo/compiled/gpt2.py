"""Writes circuits into transformers' GPT-2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import GPT2Config

from attnwidgets.zoo.compiled.residual import EPSILON, Residual, both, empty, first, sharpened, width_of

if TYPE_CHECKING:
    from torch import Tensor


class GPT2Circuit:
    """A GPT-2 whose weights are zero but for the heads and units that are written into it.

    Args:
        kind: The class of transformers.
        residual: Blocks of its residual stream; "token" and "position" are written by the embeddings.
        layers: Number of layers.
        heads: Number of heads in a layer.
        head_size: The least size of a head.
        units: Number of units of each feed-forward network.
        **settings: Further settings of the configuration.
    """

    def __init__(
        self,
        kind: Any,
        residual: Residual,
        *,
        tokens: int,
        positions: int,
        layers: int,
        heads: int,
        head_size: int,
        units: int = 1,
        **settings: Any,
    ) -> None:
        self.residual, self.width = residual, width_of(residual, heads, head_size)
        self.head_size = self.width // heads
        config = GPT2Config(
            vocab_size=tokens,
            n_positions=positions,
            n_embd=self.width,
            n_layer=layers,
            n_head=heads,
            n_inner=units,
            activation_function="relu",
            layer_norm_epsilon=EPSILON,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=tokens - 1,
            eos_token_id=None,
            tie_word_embeddings=False,
            **settings,
        )
        # The random weights that a model is born with must not use up the reader's random numbers.
        with torch.random.fork_rng(devices=[]):
            self.model = kind(config).float().eval()
        empty(self.model)
        self.model.transformer.wte.weight.data = both(residual.write("token"), self.width)
        self.model.transformer.wpe.weight.data = both(residual.write("position"), self.width)

    def head(
        self, layer: int, head: int, *, query: Tensor, key: Tensor, value: Tensor | None = None, to: str = ""
    ) -> None:
        """Write a head.

        Args:
            layer: Its layer.
            head: Its number.
            query: What it asks for [coordinate, feature]; scores are query times key, or up to twice that.
            key: What each token offers [coordinate, feature].
            value: What is copied [coordinate, value]; None for a head that writes nothing.
            to: The block that it is written to.
        """
        attention, start = self.model.transformer.h[layer].attn, head * self.head_size
        query = query * sharpened(self.head_size)
        for part, read in enumerate((query, key, value)):
            if read is not None:
                at = part * self.width + start
                attention.c_attn.weight.data[:, at : at + read.shape[1]] = first(read, self.width)
        if value is not None:
            rows = both(self.residual.write(to), self.width)
            attention.c_proj.weight.data[start : start + len(rows)] = rows

    def feed_forward(self, layer: int, *, read: Tensor, bias: Tensor, write: Tensor) -> None:
        """Write the units of a feed-forward network: relu(x @ read + bias) @ write.

        Args:
            layer: Its layer.
            read: [coordinate, unit].
            bias: [unit].
            write: [unit, coordinate].
        """
        network = self.model.transformer.h[layer].mlp
        network.c_fc.weight.data = first(read, self.width)
        network.c_fc.bias.data = bias
        network.c_proj.weight.data = both(write, self.width)

    def score(self, read: Tensor) -> None:
        """Let the model's head read the residual stream [coordinate, class]."""
        head = self.model.lm_head if hasattr(self.model, "lm_head") else self.model.score
        head.weight.data = first(read, self.width).T.contiguous()


def named(model: Any, name: str, **settings: Any) -> Any:
    """Give a model its name and what it was compiled from, which its configuration keeps in files."""
    model.config.name_or_path = f"aw.zoo.{name}"
    model.config.zoo = {"name": name, **settings}
    return model
