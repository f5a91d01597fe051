"""DINOv2 ViT-S/14 from the ONNX file in its package, with the image processor that its authors publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import Dinov2Model

# ImageNet's, as in the checkpoint's preprocessor_config.json.
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# The end of a name in the file, and in transformers.
_RENAMED = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
}
_PREFIX = "backbone."


def dinov2(folder: Path) -> tuple[Dinov2Model, Any]:
    """Return (model, image processor); the processor cuts the middle 224 x 224 pixels (16 x 16 patches)."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, patch_size=14
    )
    state = _weights(next((folder / "models").glob("*.onnx")))
    # It stands for patches that are hidden in training, and is in no file for inference.
    state["embeddings.mask_token"] = torch.zeros(1, config.hidden_size)
    # No random weights: every one is read from the file.
    with torch.device("meta"):
        model = Dinov2Model(config)
    own = model.state_dict()
    state = {_as_in(name, own): weight for name, weight in state.items()}
    model.load_state_dict(state, assign=True)
    return model, _processor()


def _weights(path: Path) -> dict[str, Any]:
    """Return the backbone's weights by their names in the checkpoint.

    Weights of linear layers and position embeddings have no name of their own in the file: the former are
    found through the bias that is added to what they give, the latter through the operation that reads them.
    """
    import numpy as np
    import torch

    from attnwidgets.demo.onnx_tensors import read

    tensors, nodes = read(path)
    found = {name[len(_PREFIX) :]: value for name, value in tensors.items() if name.startswith(_PREFIX)}
    products = {node.outputs[0]: node for node in nodes if node.operation == "MatMul"}
    for node in nodes:
        bias = next((i for i in node.inputs if i.startswith(_PREFIX) and i.endswith(".bias")), None)
        product = next((products[i] for i in node.inputs if i in products), None)
        if node.operation == "Add" and bias is not None and product is not None:
            weight = next(tensors[i] for i in product.inputs if i in tensors)
            found[bias[len(_PREFIX) : -len("bias")] + "weight"] = weight.T
    first, rest = (
        next(value for name, value in tensors.items() if name.startswith(f"onnx::{operation}"))
        for operation in ("Concat", "Reshape")
    )
    found["embeddings.position_embeddings"] = np.concatenate([first, rest], axis=1)
    return {name: torch.from_numpy(np.array(value, dtype=np.float32)) for name, value in found.items()}


def _as_in(name: str, own: dict[str, Any]) -> str:
    """Return a weight's name in this version of transformers, which renamed some."""
    for old, new in _RENAMED.items():
        renamed = name.replace(old, new)
        if renamed != name and renamed in own:
            return renamed
    return name


def _processor() -> Any:
    import transformers

    # The same arithmetic on any machine: the other one needs torchvision, and warns where it is not there.
    kind = getattr(transformers, "BitImageProcessorPil", None) or transformers.BitImageProcessor
    side = {"height": 224, "width": 224}
    return kind(size={"shortest_edge": 256}, crop_size=side, resample=3, image_mean=_MEAN, image_std=_STD)
