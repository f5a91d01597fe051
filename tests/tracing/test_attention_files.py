"""Saved attention: as a serving engine can write it, read layer by layer; damage is named, never shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

import attnwidgets as aw
from attnwidgets.tracing import attention_files
from tests.tracing.test_given import stochastic

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = ["[CLS]", "un", "##able", "[SEP]"]
N = len(TOKENS)


def layers(count: int = 3, stack: str = "self") -> dict[str, np.ndarray]:
    return {f"{stack}.{number}": stochastic(2, N, N).numpy() for number in range(count)}


def write(folder: Path, tensors: dict[str, np.ndarray], **labels: Any) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "attention.safetensors")
    (folder / "attention.json").write_text(json.dumps(labels))
    return folder


def test_a_folder_is_a_trace(tmp_path: Path) -> None:
    tensors = layers()
    tensors["self.1"] = stochastic(2, N, N).numpy()[::-1].copy()
    path = write(
        tmp_path / "dump", tensors, tokens=TOKENS, model_id="mine", input_ids=[1, 2, 3, 4], boundary=2
    )
    for given in (path, str(path)):
        result = aw.from_attentions(given)
        assert (result.n_layers(), result.n_heads(), result.model_id, result.boundary) == (3, 2, "mine", 2)
        assert result.units["word"].labels == ("[CLS]", "unable", "[SEP]")
        assert result.input_ids is not None
        assert result.input_ids.tolist() == [1, 2, 3, 4]
        for number in range(3):
            np.testing.assert_array_equal(result.attention_layer(number), tensors[f"self.{number}"])
    assert aw.explore(str(path)).trace.tokens == tuple(TOKENS)
    assert aw.rollout(result).shape == (3, N, N)
    assert aw.from_attentions(path, tokens=list("abcd"), model_id="other").tokens == tuple("abcd")


def test_rows_and_heads_are_read_alone(tmp_path: Path) -> None:
    tensors = layers(1)
    result = aw.from_attentions(write(tmp_path / "dump", tensors))
    for heads, queries in ((None, [3, 1]), ([1], slice(1, 3)), ([1, 0], None), (slice(0, 1), [2]), ([], [])):
        expected = torch.from_numpy(tensors["self.0"])
        expected = expected[slice(None) if heads is None else heads]
        expected = expected[:, slice(None) if queries is None else queries]
        assert torch.equal(result.attention_rows(0, heads, queries), expected)


def test_one_file_may_hold_its_labels_or_have_them_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "step.safetensors"
    save_file(layers(2), path, metadata={"attention": json.dumps({"tokens": TOKENS})})
    assert aw.from_attentions(path).units["word"].labels == ("[CLS]", "unable", "[SEP]")
    (tmp_path / "step.json").write_text(json.dumps({"tokens": list("abcd")}))
    assert aw.from_attentions(path).tokens == tuple("abcd")
    bare = tmp_path / "bare.safetensors"
    save_file(layers(2), bare)
    assert aw.from_attentions(bare).tokens == ("0", "1", "2", "3")


def test_a_file_for_each_layer_and_every_float_type(tmp_path: Path) -> None:
    weights = stochastic(2, N, N)
    for number, dtype in enumerate((torch.float32, torch.float16, torch.bfloat16)):
        save_torch({f"self.{number}": weights[None].to(dtype)}, tmp_path / f"layer_{number}.safetensors")
    (tmp_path / "attention.json").write_text(json.dumps({"tokens": TOKENS, "about": {"engine": "mine"}}))
    result = aw.from_attentions(tmp_path)
    assert (result.n_layers(), result.dtype) == (3, "float32")
    for number, tolerance in enumerate((0, 1e-3, 1e-2)):
        torch.testing.assert_close(result.attention_layer(number), weights, atol=tolerance, rtol=0)
    save_torch({"self.3": weights.double()}, tmp_path / "layer_3.safetensors")
    assert aw.from_attentions(tmp_path).dtype == "float64"


def test_an_encoder_decoder_has_its_stacks(tmp_path: Path) -> None:
    tensors = layers(2, "encoder") | {"decoder.0": stochastic(2, 3, 3).numpy()}
    tensors["cross.0"] = stochastic(2, 3, N).numpy()
    path = write(
        tmp_path / "dump", tensors, query_tokens=list("xyz"), key_tokens=TOKENS, input_ids=[1, 2, 3, 4]
    )
    result = aw.from_attentions(path)
    assert set(result.stacks) == {"encoder", "decoder", "cross"}
    assert [axis.tokens for axis in result.axes("cross")] == [tuple("xyz"), tuple(TOKENS)]


def test_layers_are_read_when_they_are_needed(tmp_path: Path, monkeypatch: Any) -> None:
    opened = []
    original = attention_files.FileLayer.weights

    def counted(layer: Any, *args: Any) -> Any:
        opened.append(layer.name)
        return original(layer, *args)

    monkeypatch.setattr(attention_files.FileLayer, "weights", counted)
    result = aw.from_attentions(write(tmp_path / "dump", layers()))
    assert opened == []
    result.attention_layer(1)
    assert opened == ["self.1"]


@pytest.mark.parametrize(
    ("tensors", "labels", "says"),
    [
        (
            {"layer.0": np.ones((1, N, N))},
            {},
            "'layer.0' in .* is not the name of a layer; a layer is called",
        ),
        ({"self.-1": np.ones((1, N, N))}, {}, "not the name of a layer"),
        ({"self.00": np.ones((1, N, N))}, {}, "not the name of a layer"),
        ({"self.99999999999": np.ones((1, N, N))}, {}, "not the name of a layer"),
        ({"self.0": np.ones((1, N, N)), "self.2": np.ones((1, N, N))}, {}, r"no 'self\.1'"),
        ({"self.99999": np.ones((1, N, N))}, {}, r"no 'self\.0'"),
        ({"self.0": np.ones((1, N, N), dtype=np.int64)}, {}, "is I64; weights are F16, BF16, F32, F64"),
        ({"self.0": np.ones((N, N))}, {}, r"has shape \(4, 4\); a layer is \[head, query, key\]"),
        ({"self.0": np.ones((2, 1, N, N))}, {}, r"has shape \(2, 1, 4, 4\)"),
        ({"self.0": np.ones((1, 0, N))}, {}, r"has shape \(1, 0, 4\)"),
        (
            {"self.0": np.ones((1, N, N)), "self.1": np.ones((1, 2, 2))},
            {},
            "differ in size from layer to layer",
        ),
        ({}, {}, "holds no attention"),
        (layers(), {"tokens": ["a"]}, "tokens has 1 entries, and the attention has 4"),
        (layers(), {"tokens": "abcd"}, "'tokens' in .* must be a list of str"),
        (layers(), {"tokens": [1, 2, 3, 4]}, "'tokens' in .* must be a list of str"),
        (layers(), {"tokens": None}, "'tokens' in .* must be a list of str"),
        (layers(), {"input_ids": [True] * 4}, "'input_ids' in .* must be a list of int"),
        (layers(), {"input_ids": [1]}, "input_ids in .* has 1 entries, and the attention 4"),
        (layers(), {"boundary": 99}, "boundary is 99"),
        (layers(), {"boundary": True}, "'boundary' in .* must be int"),
        (layers(), {"token": []}, r"'token' in .* is not a label.* Did you mean 'tokens'\?"),
        (layers(), {"memory": "1TB"}, "'memory' in .* is not a label"),
        (layers(), {"words": [[0]]}, "'words' in .* must be a list of int"),
        (layers(), {"input_ids": [10**30] * 4}, "'input_ids' in .* has a number beyond 64 bits"),
        (layers(), {"boundary": -(10**30)}, "'boundary' in .* has a number beyond 64 bits"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, tensors: Any, labels: Any, says: str) -> None:
    path = write(tmp_path / "dump", tensors, **labels)
    with pytest.raises(ValueError, match=says):
        aw.from_attentions(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_are_located_when_they_are_read(tmp_path: Path, bad: float) -> None:
    tensors = layers()
    tensors["self.1"][1, 2, 3] = bad
    result = aw.from_attentions(write(tmp_path / "dump", tensors))
    result.attention_layer(0)
    for read in (lambda: result.attention_layer(1), lambda: result.attention_rows(1, [1], [2])):
        with pytest.raises(ValueError, match=r"'self\.1' of .* holds (nan|inf) at head 1, query 2, key 3"):
            read()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '"tokens"', "[" * 100_000, "\x00", '{"tokens": ["\\ud800", "a", "b"]}']
)
def test_labels_that_are_no_labels(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "dump", layers())
    (path / "attention.json").write_text(text)
    with pytest.raises(ValueError, match=r"labels|tokens has 3"):
        aw.from_attentions(path)


def test_too_many_labels_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "dump", layers())
    with (path / "attention.json").open("wb") as file:
        file.truncate(2**30)  # a hole on the disk
    with pytest.raises(ValueError, match=r"1,073,741,824 bytes of labels; at most 67,108,864 are read"):
        aw.from_attentions(path)


@pytest.mark.parametrize("name", ["attention.json", "attention.safetensors"])
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "dump", layers())
    outside = tmp_path / name
    (path / name).rename(outside)
    (path / name).symlink_to(outside)
    with pytest.raises(ValueError, match=rf"{name}' is a link out of its folder"):
        aw.from_attentions(path)
    (tmp_path / "link").symlink_to(write(tmp_path / "other", layers()))
    assert aw.from_attentions(tmp_path / "link").n_layers() == 3  # the folder that the user named


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    path = write(tmp_path / "dump", layers()) / "attention.safetensors"
    whole = path.read_bytes()
    for data in (b"", whole[:4], whole[: len(whole) // 2], b"\xff" * 64, b"\x00" * 8):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"is not a safetensors file, or is damaged|holds no attention"):
            aw.from_attentions(path.parent)
    with pytest.raises(FileNotFoundError, match="a string is the path of saved attention"):
        aw.from_attentions(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"needs attention\.json and \*\.safetensors files"):
        aw.from_attentions(tmp_path)
    saved = aw.rollout(aw.from_attentions(stochastic(2, 2, N, N), TOKENS)).save(tmp_path / "map.safetensors")
    with pytest.raises(ValueError, match=r"is a saved explanation: aw\.load\(path\) opens it"):
        aw.from_attentions(saved)


def test_a_layer_in_two_files_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "dump", layers())
    save_file(layers(1), path / "more.safetensors")
    with pytest.raises(
        ValueError, match=r"'self\.0' is in 'attention.safetensors' and in 'more.safetensors'"
    ):
        aw.from_attentions(path)


def test_hostile_labels_are_only_text(tmp_path: Path) -> None:
    labels = ["<script>alert(1)</script>", "\x00", "\u202e", "##able"]
    result = aw.from_attentions(write(tmp_path / "dump", layers(), tokens=labels, model_id="\ud800<b>"))
    assert result.tokens[:3] == tuple(labels[:3])
    assert result.model_id == "\ufffd<b>"


def test_a_file_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "dump", layers())
    result = aw.from_attentions(path)
    save_file({"self.0": np.ones((2, N, N), dtype=np.float32)}, path / "attention.safetensors")
    with pytest.raises(ValueError, match=r"'self\.1' of .* cannot be read any more"):
        result.attention_layer(1)
    (path / "attention.safetensors").unlink()
    with pytest.raises(ValueError, match=r"'self\.2' of .* cannot be read any more"):
        result.attention_layer(2)
