"""Models by the name of a folder: nothing in it runs, and no prompt waits for an answer."""

from __future__ import annotations

import json

import pytest
import torch

import attnwidgets as aw

transformers = pytest.importorskip("transformers")

CODE = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
from transformers import PretrainedConfig
class Config(PretrainedConfig):
    model_type = "mine"
"""


class Prints:
    """Its pickle prints."""

    def __reduce__(self):
        return print, ("the pickle ran",)


@pytest.fixture
def silent(monkeypatch):
    """Let a prompt fail."""

    def asked(*_):
        raise AssertionError("a prompt waits for an answer")

    monkeypatch.setattr("builtins.input", asked)


@pytest.mark.parametrize("load", [aw.trace, aw.explore])
def test_code_of_a_folder_is_refused_without_a_prompt(tmp_path, silent, load):
    kinds = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(kinds))
    (tmp_path / "code.py").write_text(CODE)
    with pytest.raises(ValueError, match=r"has code in its folder.*trust_remote_code=True"):
        load(str(tmp_path), "A text.")
    assert not list(tmp_path.glob("ran"))


def test_a_pickle_of_weights_is_refused_in_words(tmp_path, capsys):
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    config.architectures = ["BertModel"]
    config.save_pretrained(tmp_path)
    torch.save({"weight": Prints()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"a pickle with more in it than tensors, .* \.safetensors"):
        aw.trace(str(tmp_path), input_ids=[1, 2])
    assert "ran" not in capsys.readouterr().out
