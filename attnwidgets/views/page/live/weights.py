"""Weights of a model in the layout of a live page, exact where few bytes hold them, else rounded."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets.views.page.live.families import FAMILIES
from attnwidgets.views.page.live.kinds import Tensor, is_grouped, joined, pack, pack_exactly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MOST_PARAMETERS = 400_000
"""Parameters of a model up to which it travels in the page itself, and with a notebook."""

MOST_BYTES = 200_000_000
"""Bytes of weights that a page loads at most."""

WEIGHTS = ("auto", "exact", "float16", "int8")
"""How the numbers of a model travel; see `to_html`."""

_LEAST = 0.625  # bytes of a number in 4 bits, with its share of a scale
_INT8 = 1.0625  # bytes of a number, with its share of a scale


@dataclass(frozen=True)
class Layout:
    """A model as a page computes it.

    Attributes:
        shape: Sizes and kinds of its parts: the `Shape` of the page's engine.
        layers: Number of layers.
        tensors: Weights by name; those of a layer begin with its number ("0.q"). Matrices are [to, from], and
            a bias is named as its matrix, with a "b".
        positions: The most tokens of a text.
        rounded: To what matrices were rounded: "float16", "8 bits", or "" where all numbers are exact.
    """

    shape: Mapping[str, Any]
    layers: int
    tensors: Mapping[str, Tensor]
    positions: int
    rounded: str

    def described(self) -> dict[str, Any]:
        """Return the `PackedModel` of the page's engine."""
        table = [[name, tensor.kind, *_sides(tensor.shape)] for name, tensor in self.tensors.items()]
        return {"shape": dict(self.shape), "layers": self.layers, "tensors": table}

    def data(self) -> bytes:
        """Return the weights as bytes in the order of `tensors`, little-endian."""
        return joined(self.tensors.values())

    def rounded_copy(self, model: Any) -> Any:
        """Return a copy of the model in float32 on the CPU that computes with the numbers of the page."""
        import torch

        rounded = deepcopy(model).float().cpu().eval()
        with no_grad():
            for name, values in named_weights(rounded)[-1].items():
                numbers = self.tensors.get(name) or self.tensors["token"]  # tied
                values.copy_(torch.from_numpy(numbers.unpacked()))
        return rounded.requires_grad_(requires_grad=False)


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    return (1, *shape) if len(shape) == 1 else shape  # type: ignore[return-value] # matrices have two


def layout_of(model: Any, weights: str = "auto") -> Layout:
    """Return the layout of a transformers model.

    Args:
        model: The model.
        weights: "auto", "exact", "float16" or "int8"; see `to_html`.

    Raises:
        ValueError: The model is too large, or not of these kinds; the message names the unsupported part.
    """
    name = type(model).__name__
    shape, positions, named = named_weights(model)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count * _LEAST > MOST_BYTES:
        raise ValueError(
            f"{name} has {count:,} parameters, and a page computes models of at most "
            f"{MOST_BYTES / _LEAST / 1e6:.0f} million: use a smaller one"
        )
    arrays = {key: _array(value) for key, value in named.items()}
    if "out" in arrays and np.array_equal(arrays["out"], arrays["token"]):
        del arrays["out"]  # the embeddings, once more
    tensors, inexact = {}, False
    for key, values in arrays.items():
        exact = pack_exactly(values, _exact_kinds(values, weights))
        inexact |= exact is None
        tensors[key] = exact or _rounded(name, key, values, weights)
    size = sum(tensor.size for tensor in tensors.values())
    if size > MOST_BYTES:
        in_int8 = sum(values.size for values in arrays.values()) * _INT8
        smaller = weights != "int8" and in_int8 <= MOST_BYTES
        way = f"weights='int8' takes {in_int8 / 1e6:.0f} MB" if smaller else "use a smaller model"
        raise ValueError(
            f"the weights of {name} take {size / 1e6:.0f} MB, and a page loads at most "
            f"{MOST_BYTES / 1e6:.0f} MB: {way}"
        )
    rounded = "" if not inexact else "8 bits" if weights == "int8" else "float16"
    return Layout(shape, model.config.num_hidden_layers, tensors, positions, rounded)


def named_weights(model: Any) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """Return the shape of a model, the most tokens of a text, and its weights by their names in a layout.

    The weights are views of the model's parameters.
    """
    name = type(model).__name__
    family = next((prefix for prefix in FAMILIES if name.startswith(prefix)), None)
    if family is None:
        raise ValueError(f"{name} has no blocks of a kind that a page computes: {', '.join(FAMILIES)}")
    describe, heads = FAMILIES[family]
    reads = heads.get(name.removeprefix(family))
    if reads is None:
        raise ValueError(f"a page computes {', '.join(family + suffix for suffix in heads)}, but not {name}")
    shape, positions, weights = describe(model.config, model.base_model)
    padding = model.config.pad_token_id
    shape |= {"reads": "none", "steps": [], "padding": -1 if padding is None else int(padding)}
    named = {key: value for key, value in [*weights, *reads(model, shape)] if value is not None}
    return shape, positions, named


def _array(value: Any) -> NDArray[np.float32]:
    return np.ascontiguousarray(value.detach().float().cpu().numpy())


def _exact_kinds(values: NDArray[np.float32], weights: str) -> tuple[str, ...]:
    """Return the kinds in which numbers stay as they are; vectors, which are small, always do."""
    groups = () if weights == "float16" else ("q4m", "q8")
    # In 8 bits, a matrix is not kept exact by float16, which takes twice the bytes.
    halves = () if weights == "int8" and is_grouped(values) else ("f16",)
    return (*groups, *halves, *(("f32",) if weights == "exact" or values.ndim == 1 else ()))


def _rounded(model: str, name: str, values: NDArray[np.float32], weights: str) -> Tensor:
    try:
        return pack(values, "q8" if weights == "int8" and is_grouped(values) else "f16")
    except OverflowError as error:
        raise ValueError(
            f"{model} has weights ({name}) of which {error} (65,504): weights='exact' keeps them"
        ) from error
