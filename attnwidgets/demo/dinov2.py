"""DINOv2 ViT-S/14 from the ONNX file in its package, whose tensors are read without the package onnx.

An ONNX file is a message of protobuf: pairs of a field's number and its value (`_fields`). The numbers are
those of the format's definition (onnx.proto, version 3); other fields are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from transformers import Dinov2Model

# ImageNet's, as in the checkpoint's preprocessor_config.json.
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# Ends of names in the file, and in transformers.
_RENAMED = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
}
_PREFIX = "backbone."

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH, _NODE, _TENSOR = 7, 1, 5  # ModelProto.graph, GraphProto.node, GraphProto.initializer
_INPUT, _OUTPUT, _OPERATION = 1, 2, 4  # of a NodeProto
_SIZE, _KIND, _NAME, _RAW = 1, 2, 8, 9  # of a TensorProto
_FLOAT = 1  # TensorProto.DataType


def dinov2(folder: Path) -> tuple[Dinov2Model, Any]:
    """Return (model, image processor); the processor cuts the middle 224 x 224 pixels (16 x 16 patches)."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, patch_size=14
    )
    state = _weights(next((folder / "models").glob("*.onnx")))
    # It replaces patches that are hidden in training, and no file for inference has it.
    state["embeddings.mask_token"] = torch.zeros(1, config.hidden_size)
    # Without random weights: all are read from the file.
    with torch.device("meta"):
        model = Dinov2Model(config)
    names = set(model.state_dict())
    state = {_as_in(name, names): weight for name, weight in state.items()}
    model.load_state_dict(state, assign=True)
    return model, _processor()


def _weights(path: Path) -> dict[str, Any]:
    """Return the backbone's weights by their names in the checkpoint.

    Weights of linear layers and position embeddings have no names in the file: the former are
    identified by the bias that is added to their product, the latter by the operation that reads them.
    """
    import torch

    tensors, nodes = read(path)
    result = {name[len(_PREFIX) :]: value for name, value in tensors.items() if name.startswith(_PREFIX)}
    products = {node.outputs[0]: node for node in nodes if node.operation == "MatMul"}
    for node in nodes:
        bias = next((i for i in node.inputs if i.startswith(_PREFIX) and i.endswith(".bias")), None)
        product = next((products[i] for i in node.inputs if i in products), None)
        if node.operation == "Add" and bias is not None and product is not None:
            weight = next(tensors[i] for i in product.inputs if i in tensors)
            result[bias[len(_PREFIX) : -len("bias")] + "weight"] = weight.T
    first, rest = (
        next(value for name, value in tensors.items() if name.startswith(f"onnx::{operation}"))
        for operation in ("Concat", "Reshape")
    )
    result["embeddings.position_embeddings"] = np.concatenate([first, rest], axis=1)
    return {name: torch.from_numpy(np.array(value, dtype=np.float32)) for name, value in result.items()}


def _as_in(name: str, names: set[str]) -> str:
    """Return a weight's name in this version of transformers, whose names are `names`."""
    for old, new in _RENAMED.items():
        renamed = name.replace(old, new)
        if renamed != name and renamed in names:
            return renamed
    return name


def _processor() -> Any:
    import transformers

    # The same arithmetic on any machine: the other processor needs torchvision, and warns without it.
    kind = getattr(transformers, "BitImageProcessorPil", None) or transformers.BitImageProcessor
    side = {"height": 224, "width": 224}
    return kind(size={"shortest_edge": 256}, crop_size=side, resample=3, image_mean=_MEAN, image_std=_STD)


@dataclass(frozen=True)
class Node:
    """An operation: its name in ONNX ("MatMul"), and the names of its inputs and outputs."""

    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def read(path: Path) -> tuple[dict[str, NDArray[np.float32]], list[Node]]:
    """Return the float32 tensors that a file stores, by name, and its operations in order.

    Raises:
        ValueError: If the file is not of this format.
    """
    file = _fields(memoryview(path.read_bytes()))
    graphs = [value for number, value in file if number == _GRAPH and isinstance(value, memoryview)]
    if not graphs:
        raise ValueError(f"{path.name} is not an ONNX file")
    tensors: dict[str, NDArray[np.float32]] = {}
    nodes = []
    for number, value in _fields(graphs[0]):
        if isinstance(value, int):
            continue
        if number == _NODE:
            nodes.append(_node(value))
        elif number == _TENSOR:
            tensors.update(_tensor(value))
    return tensors, nodes


def _node(message: memoryview) -> Node:
    texts: dict[int, list[str]] = {_INPUT: [], _OUTPUT: [], _OPERATION: []}
    for number, value in _fields(message):
        if number in texts and isinstance(value, memoryview):
            texts[number].append(str(value, "utf-8"))
    return Node(texts[_OPERATION][0], tuple(texts[_INPUT]), tuple(texts[_OUTPUT]))


def _tensor(message: memoryview) -> dict[str, NDArray[np.float32]]:
    """Return a tensor by its name; {} for a tensor of another type, such as a shape."""
    shape: list[int] = []
    result: dict[int, int | memoryview] = {}
    for number, value in _fields(message):
        if number != _SIZE:
            result[number] = value
        elif isinstance(value, int):
            shape.append(value)
        else:  # all sizes in a packed field
            shape += _numbers(value)
    name, raw = result.get(_NAME), result.get(_RAW)
    if result.get(_KIND) != _FLOAT or not isinstance(name, memoryview) or not isinstance(raw, memoryview):
        return {}
    return {str(name, "utf-8"): np.frombuffer(raw, "<f4").reshape(shape)}


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Iterate over a message's fields: their numbers, and a whole number or bytes."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _number(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _number(message, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"field {key >> 3} is of kind {kind}, which this format does not have")
        if at + size > len(message):
            raise ValueError(f"field {key >> 3} ends after the file")
        yield key >> 3, message[at : at + size]
        at += size


def _numbers(message: memoryview) -> list[int]:
    at, result = 0, []
    while at < len(message):
        number, at = _number(message, at)
        result.append(number)
    return result


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Return the whole number that begins at a byte (seven bits a byte, low ones first), and its end."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:  # noqa: PLR2004 - the high bit says that more follow
            return number, at
