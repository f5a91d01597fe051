"""Writes heads and feed-forward networks into transformers' own GPT-2 and BERT, over a residual stream.

The residual stream of a compiled model: named blocks of coordinates, each written with both signs.

A layer norm with epsilon 2^30 and gain 2^15 returns x - mean(x): both numbers are exact, and every variance
that occurs is small compared to the epsilon. Each coordinate is written twice, as x and as -x. The mean is
then 0, and norms change nothing. Both numbers are powers of two; half precision holds the gain, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from transformers import BertConfig, GPT2Config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

EPSILON, GAIN = 2.0**30, 2.0**15
SHARP = 64.0
"""The least attention score of a match, before the softmax; all other scores are at most half of it."""


class Residual:
    """Named blocks of the residual stream.

    Args:
        **sizes: The blocks by name.
    """

    def __init__(self, **sizes: int) -> None:
        self.at: dict[str, int] = {}
        self.size = 0
        for name, size in sizes.items():
            self.at[name] = self.size
            self.size += size
        self._sizes = sizes

    def read(self, *names: str) -> Tensor:
        """Return the matrix [coordinate, value] that reads blocks, in the order named."""
        every = torch.eye(self.size)
        return torch.cat([every[:, self.at[name] : self.at[name] + self._sizes[name]] for name in names], 1)

    def write(self, *names: str) -> Tensor:
        """Return the matrix [value, coordinate] that writes blocks."""
        return self.read(*names).T


def steps(thresholds: Sequence[float], gaps: Sequence[float], reads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return units that tell whether a number is above each of several thresholds.

    Two units make a step: relu(z + 1/2) - relu(z - 1/2) with z = 2 (x - threshold) / gap. It is flat but for
    the middle half of the gap, so that rounding errors of x do not matter.

    Args:
        thresholds: The thresholds.
        gaps: For each, the distance of the two values of x that it separates.
        reads: The weights that read x [coordinate].

    Returns:
        Weights [coordinate, unit], bias [unit], and weights [unit, step].
    """
    slopes = 2 / torch.tensor(gaps, dtype=torch.float64)
    middle = -slopes * torch.tensor(thresholds, dtype=torch.float64)
    read = reads[:, None] * slopes.repeat(2).float()
    bias = torch.cat([middle + 0.5, middle - 0.5]).float()
    return read, bias, torch.cat([torch.eye(len(thresholds)), -torch.eye(len(thresholds))])


def bands(values: Sequence[float], reads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return units that tell which of several values a number has; as `steps`, [unit, value].

    Args:
        values: The values in ascending order; the first and the last are only distinguished, not read.
        reads: The weights that read the number [coordinate].
    """
    thresholds = [(low + high) / 2 for low, high in pairwise(values)]
    read, bias, write = steps(thresholds, [high - low for low, high in pairwise(values)], reads)
    return read, bias, write[:, :-1] - write[:, 1:]


LOGIT = 10.0
"""The logit of the right answer; all others are 0."""


def width_of(residual: Residual, heads: int, least: int) -> int:
    """Return the width of a model: both signs of all coordinates, in `heads` parts of at least `least`."""
    return heads * max(least, math.ceil(2 * residual.size / heads))


def both(written: Tensor, width: int) -> Tensor:
    """Return rows [value, coordinate] as [value, width]: with both signs, and zeros to the width."""
    signed = torch.cat([written, -written], -1)
    return torch.nn.functional.pad(signed, (0, width - signed.shape[-1]))


def first(read: Tensor, width: int) -> Tensor:
    """Return columns [coordinate, value] as [width, value]: the first sign alone is read."""
    return torch.nn.functional.pad(read, (0, 0, 0, width - len(read)))


def sharpened(head_size: int) -> float:
    """Return the power of two that undoes, and at most doubles, the scaling of scores by 1 / sqrt(size)."""
    return 2.0 ** math.ceil(math.log2(math.sqrt(head_size)))


def empty(kind: Any, config: Any) -> Any:
    """Return a model in evaluation mode whose weights are zero, but for layer norms, which change nothing.

    Args:
        kind: A class of transformers.
        config: Its configuration.
    """
    # The random weights that a model is born with must not use up the reader's random numbers.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        model = kind(config).float().eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.weight.data.fill_(GAIN)
    return model


def named(model: Any, name: str, **settings: Any) -> Any:
    """Return the model; its configuration stores the name and the settings it was compiled from."""
    model.config.name_or_path = f"aw.zoo.{name}"
    model.config.zoo = {"name": name, **settings}
    return model


class Circuit(ABC):
    """A transformer whose weights are all zero except for the heads and networks that are written into it.

    Args:
        kind: A class of transformers.
        residual: Blocks of its residual stream; the word embeddings write "token".
        tokens: Number of tokens; the last is `<s>`.
        positions: Number of positions.
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
        layers: int = 1,
        heads: int = 1,
        head_size: int = 1,
        units: int = 1,
        **settings: Any,
    ) -> None:
        self.residual, self.width = residual, width_of(residual, heads, head_size)
        self.head_size = self.width // heads
        sizes = {"tokens": tokens, "positions": positions, "layers": layers, "heads": heads, "units": units}
        self.model = empty(kind, self._config(sizes, settings))
        self._embed()

    @abstractmethod
    def _config(self, sizes: dict[str, int], settings: dict[str, Any]) -> Any:
        """Return the configuration."""

    @abstractmethod
    def _embed(self) -> None:
        """Write the embeddings."""

    @abstractmethod
    def _attention(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the weights of query, key, value and output [from, to], as views to write to."""

    @abstractmethod
    def _network(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights [from, unit], bias [unit] and weights [unit, to], as views to write to."""

    @abstractmethod
    def _reader(self) -> Tensor:
        """Return the weights [from, class] of the model's head, as a view to write to."""

    def head(
        self,
        layer: int,
        head: int,
        *,
        query: Tensor | None = None,
        key: Tensor | None = None,
        value: Tensor | None = None,
        to: tuple[str, ...] = (),
    ) -> None:
        """Write a head.

        Args:
            layer: Its layer.
            head: Its number.
            query: Reads the features to look for [coordinate, feature]; scores are query times key, or up to
                twice that. None for a head that attends evenly.
            key: Reads the features that each token offers [coordinate, feature].
            value: Reads the values to copy [coordinate, value]; None for a head that writes nothing.
            to: The blocks that it is written to.
        """
        *readers, output = self._attention(layer)
        start = head * self.head_size
        query = None if query is None else query * sharpened(self.head_size)
        for weights, read in zip(readers, (query, key, value), strict=True):
            if read is not None:
                weights[:, start : start + read.shape[1]] = first(read, self.width)
        if value is not None:
            rows = both(self.residual.write(*to), self.width)
            output[start : start + len(rows)] = rows

    def feed_forward(self, layer: int, *, read: Tensor, bias: Tensor, write: Tensor) -> None:
        """Write a feed-forward network: relu(x @ read + bias) @ write.

        Args:
            layer: Its layer.
            read: [coordinate, unit].
            bias: [unit].
            write: [unit, coordinate].
        """
        weights, biases, output = self._network(layer)
        weights[:, : read.shape[1]] = first(read, self.width)
        biases[: len(bias)] = bias
        output[: len(write)] = both(write, self.width)

    def answer(self, read: Tensor) -> None:
        """Let the model's head read its logits from the residual stream [coordinate, class]."""
        self._reader()[:] = first(read, self.width)

    def named(self, name: str, **settings: Any) -> Any:
        """Return the model; its configuration stores the name and the settings it was compiled from."""
        return named(self.model, name, **settings)


class GPT2Circuit(Circuit):
    """A GPT-2: causal, with positions in the block "position"."""

    def _config(self, sizes: dict[str, int], settings: dict[str, Any]) -> Any:
        return GPT2Config(
            vocab_size=sizes["tokens"],
            n_positions=sizes["positions"],
            n_embd=self.width,
            n_layer=sizes["layers"],
            n_head=sizes["heads"],
            n_inner=sizes["units"],
            activation_function="relu",
            layer_norm_epsilon=EPSILON,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=sizes["tokens"] - 1,
            eos_token_id=None,
            tie_word_embeddings=False,
            **settings,
        )

    def _embed(self) -> None:
        self.model.transformer.wte.weight.data[:] = both(self.residual.write("token"), self.width)
        self.model.transformer.wpe.weight.data[:] = both(self.residual.write("position"), self.width)

    def _attention(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        attention = self.model.transformer.h[layer].attn
        query, key, value = attention.c_attn.weight.data.split(self.width, 1)
        return query, key, value, attention.c_proj.weight.data

    def _network(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        network = self.model.transformer.h[layer].mlp
        return network.c_fc.weight.data, network.c_fc.bias.data, network.c_proj.weight.data

    def _reader(self) -> Tensor:
        head = self.model.lm_head if hasattr(self.model, "lm_head") else self.model.score
        weights: Tensor = head.weight.data.T
        return weights


class BertCircuit(Circuit):
    """A BERT: every token sees every other; positions are not told apart."""

    def _config(self, sizes: dict[str, int], settings: dict[str, Any]) -> Any:
        return BertConfig(
            vocab_size=sizes["tokens"],
            max_position_embeddings=sizes["positions"],
            hidden_size=self.width,
            num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["heads"],
            intermediate_size=sizes["units"],
            hidden_act="relu",
            layer_norm_eps=EPSILON,
            type_vocab_size=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            bos_token_id=sizes["tokens"] - 1,
            pad_token_id=None,
            **settings,
        )

    def _embed(self) -> None:
        words = self.model.bert.embeddings.word_embeddings
        words.weight.data[:] = both(self.residual.write("token"), self.width)

    def _attention(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        attention = self.model.bert.encoder.layer[layer].attention
        projections = (attention.self.query, attention.self.key, attention.self.value, attention.output.dense)
        query, key, value, output = (projection.weight.data.T for projection in projections)
        return query, key, value, output

    def _network(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        block = self.model.bert.encoder.layer[layer]
        units = block.intermediate.dense
        return units.weight.data.T, units.bias.data, block.output.dense.weight.data.T

    def _reader(self) -> Tensor:
        weights: Tensor = self.model.classifier.weight.data.T
        return weights
