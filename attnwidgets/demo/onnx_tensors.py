"""The tensors and nodes of an ONNX file, read without the package onnx.

An ONNX file is one message of protobuf: pairs of a field's number and its value. The numbers are those of the
format's definition (onnx.proto, version 3); fields that are not needed here are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH, _NODE, _TENSOR = 7, 1, 5  # ModelProto.graph, GraphProto.node, GraphProto.initializer
_INPUT, _OUTPUT, _OPERATION = 1, 2, 4  # of a NodeProto
_SIZE, _KIND, _NAME, _RAW = 1, 2, 8, 9  # of a TensorProto
_FLOAT = 1  # TensorProto.DataType


@dataclass(frozen=True)
class Node:
    """One operation: its name in ONNX ("MatMul"), and the names of what it reads and returns."""

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
    """Return a tensor by its name; nothing for one of another type, as shapes are."""
    shape: list[int] = []
    found: dict[int, int | memoryview] = {}
    for number, value in _fields(message):
        if number != _SIZE:
            found[number] = value
        elif isinstance(value, int):
            shape.append(value)
        else:  # all sizes in one field
            shape += _numbers(value)
    name, raw = found.get(_NAME), found.get(_RAW)
    if found.get(_KIND) != _FLOAT or not isinstance(name, memoryview) or not isinstance(raw, memoryview):
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
    at, found = 0, []
    while at < len(message):
        number, at = _number(message, at)
        found.append(number)
    return found


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Return the whole number that begins at a byte (seven bits a byte, low ones first), and its end."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:  # noqa: PLR2004 - the high bit says that more follow
            return number, at
