from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import types

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import attnwidgets as aw
from attnwidgets.sae.formats import READERS, SAEFormatError

from . import made

DICTIONARIES = (
    "AutoEncoder",
    "AutoEncoderNew",
    "GatedAutoEncoder",
    "JumpReluAutoEncoder",
    "AutoEncoderTopK",
    "BatchTopKSAE",
    "MatryoshkaBatchTopKSAE",
)
OF_SAELENS = ("jumprelu", "layer_norm", "constant_norm_rescale", "topk_rescaled", "gated_without_b_dec")


def compare(sae: aw.SAE, expected: dict, name: str = "", tolerance: float = 1e-5) -> None:
    prefix = f"{name}/" if name else ""
    a = sae.encode(expected["x"])
    assert float((a - expected[f"{prefix}a"]).abs().max()) <= tolerance
    assert float((sae.decode(a) - expected[f"{prefix}reconstruction"]).abs().max()) <= tolerance
    assert int((a > 0).sum()) > 0


# -- files that other libraries wrote ----------------------------------------------------------


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionary_learning_files_give_what_that_library_computes(name):
    folder = made.FIXTURES / "dictionary_learning"
    sae = aw.SAE.from_pretrained(folder / name)
    compare(sae, load_file(folder / "expected.safetensors"), name)
    assert sae.site == "blocks.1.hook_resid_post"
    assert sae.model_name == "made/model"


def test_dictionary_learnings_folded_activations_are_the_lectures():
    folder = made.FIXTURES / "dictionary_learning"
    sae = aw.SAE.from_pretrained(folder / "AutoEncoder")
    expected = load_file(folder / "expected.safetensors")
    folded = expected["AutoEncoder/a_of_from_pretrained"]
    assert float((folded - expected["AutoEncoder/a"]).abs().max()) > 0.1  # they do differ
    torch.testing.assert_close(sae.encode(expected["x"], activation="lecture"), folded, atol=1e-5, rtol=0)
    torch.testing.assert_close(sae.fold_decoder_norm().encode(expected["x"]), folded, atol=1e-5, rtol=0)


def test_sparsify_files_give_what_that_library_computes():
    folder = made.FIXTURES / "sparsify"
    sae = aw.SAE.from_pretrained(folder, "layers.1.mlp")
    compare(sae, load_file(folder / "expected.safetensors"))
    assert sae.site == "layers.1.mlp"


@pytest.mark.parametrize("name", OF_SAELENS)
def test_saelens_files_give_what_that_library_computes(name):
    folder = made.FIXTURES / "sae_lens"
    sae = aw.SAE.from_pretrained(folder / name)
    compare(sae, load_file(folder / "expected.safetensors"), name, tolerance=1e-6)
    assert sae.site == "blocks.1.hook_resid_post"


# -- files of formats that their definition describes ------------------------------------------


@pytest.mark.parametrize(
    ("repository", "path", "site", "model"),
    [
        ("gemma-scope-2b-pt-res", "layer_20/width_16k/average_l0_71", "blocks.20.hook_resid_post", "2b"),
        ("gemma-scope-9b-pt-mlp", "layer_3/width_16k/average_l0_9", "blocks.3.hook_mlp_out", "9b"),
        (
            "models--google--gemma-scope-2b-pt-att",
            "layer_0/width_65k/average_l0_5",
            "blocks.0.attn.hook_z",
            "2b",
        ),
        ("gemma-scope-9b-it-res", "layer_9/width_16k/average_l0_14", "blocks.9.hook_resid_post", "9b-it"),
        ("some-folder", "layer_9/width_16k/average_l0_14", "", ""),
    ],
)
def test_gemma_scope_says_its_site_by_its_path(tmp_path, repository, path, site, model):
    drawn = made.weights()
    made.write_gemma_scope(tmp_path / repository / path, drawn, upper="att" not in repository)
    sae = aw.SAE.from_pretrained(tmp_path / repository, path)
    h = made.states()
    p = h @ drawn["W_enc"] + drawn["b_enc"]  # nothing is subtracted
    torch.testing.assert_close(sae.encode(h), torch.where(p > drawn["threshold"], p.relu(), 0))
    assert sae.site == site
    assert sae.model_name == (f"google/gemma-2-{model}" if model else "")


def test_gemma_scopes_embedding_saes_are_rescaled(tmp_path):
    drawn = made.weights()
    made.write_gemma_scope(
        tmp_path / "gemma-scope-2b-pt-res" / "embedding" / "width_4k" / "average_l0_6", drawn
    )
    sae = aw.SAE.from_pretrained(
        tmp_path / "gemma-scope-2b-pt-res" / "embedding" / "width_4k" / "average_l0_6"
    )
    torch.testing.assert_close(sae.W_enc, drawn["W_enc"] / 8**0.5)
    torch.testing.assert_close(sae.W_dec, drawn["W_dec"] * 8**0.5)
    assert sae.site == "hook_embed"


@pytest.mark.parametrize("named", [True, False])
def test_gemma_scope_2_says_its_site_in_its_configuration_or_path(tmp_path, named):
    drawn = made.weights()
    config = {
        "architecture": "jump_relu",
        "model_name": "google/gemma-3-1b-pt",
        "hf_hook_point_in": "model.layers.7.post_feedforward_layernorm.output",
    }
    folder = tmp_path / "mlp_out" / "layer_7_width_16k_l0_small"
    made.write_gemma_scope_2(folder, drawn, config if named else None)
    sae = aw.SAE.from_pretrained(folder)
    p = made.states() @ drawn["W_enc"] + drawn["b_enc"]
    torch.testing.assert_close(sae.encode(made.states()), torch.where(p > drawn["threshold"], p.relu(), 0))
    assert sae.site == (config["hf_hook_point_in"] if named else "blocks.7.hook_mlp_out")


def test_llama_scope_reads_scaled_states(tmp_path):
    drawn = made.weights()
    sae = aw.SAE.from_pretrained(made.write_llama_scope(tmp_path / "L1R", drawn))
    h, c = made.states(), 8**0.5 / 6.0
    p = c * h @ drawn["W_enc"] + drawn["b_enc"]
    a = torch.where(p > 0.25 * c, p.relu(), 0)  # the threshold is in the scale of h
    torch.testing.assert_close(sae.encode(h), a)
    torch.testing.assert_close(sae(h), (a @ drawn["W_dec"] + drawn["b_dec"]) / c)
    assert sae.site == "blocks.1.hook_resid_post"


OLD = {
    "d_in": 8,
    "d_sae": 20,
    "dtype": "torch.float32",
    "hook_point": "blocks.3.hook_resid_pre",
    "model_name": "gpt2-small",
    "activation_fn_str": "relu",
}


def test_old_saelens_configurations_are_brought_up_to_date(tmp_path):
    drawn = made.weights()
    tensors = {name: drawn[name] for name in ("W_enc", "W_dec", "b_enc", "b_dec")}
    folder = made.write_saelens(tmp_path / "old", tensors | {"scaling_factor": torch.ones(20)}, OLD)
    sae = aw.SAE.from_pretrained(folder)
    h = made.states()
    torch.testing.assert_close(sae.encode(h), ((h - drawn["b_dec"]) @ drawn["W_enc"] + drawn["b_enc"]).relu())
    assert sae.site == "blocks.3.hook_resid_pre"
    assert sae.model_name == "gpt2-small"
    top = OLD | {"activation_fn_str": "topk", "activation_fn_kwargs": {"k": 4}, "apply_b_dec_to_input": False}
    sae = aw.SAE.from_pretrained(made.write_saelens(tmp_path / "top", tensors, top))
    assert int((sae.encode(h) > 0).sum(-1).max()) == 4
    torch.testing.assert_close(
        sae.encode(h).max(-1).values, (h @ drawn["W_enc"] + drawn["b_enc"]).max(-1).values
    )


def test_a_scale_that_is_not_folded_is_asked_for_or_read(tmp_path):
    drawn = made.weights()
    tensors = {name: drawn[name] for name in ("W_enc", "W_dec", "b_enc", "b_dec")}
    folder = made.write_saelens(tmp_path / "scaled", tensors, OLD | {"normalize_activations": True})
    h = made.states()
    with pytest.warns(UserWarning, match="Pass it as input_scale="):
        plain = aw.SAE.from_pretrained(folder)
    torch.testing.assert_close(
        aw.SAE.from_pretrained(folder, input_scale=3.0).encode(h), plain.encode(3 * h), atol=1e-4, rtol=0
    )
    (folder / "activation_scaler.json").write_text(json.dumps({"scaling_factor": 3.0}))
    read = aw.SAE.from_pretrained(folder)  # in the middle of training, SAELens keeps it beside the weights
    torch.testing.assert_close(read.encode(h), plain.encode(3 * h), atol=1e-4, rtol=0)


def test_half_precision_files_are_widened_unless_a_dtype_is_named(tmp_path):
    drawn = made.weights()
    tensors = {name: drawn[name].bfloat16() for name in ("W_enc", "W_dec", "b_enc", "b_dec")}
    folder = made.write_saelens(tmp_path / "half", tensors, OLD)
    assert aw.SAE.from_pretrained(folder).dtype == torch.float32
    assert aw.SAE.from_pretrained(folder, dtype=torch.float64).dtype == torch.float64


# -- live objects ------------------------------------------------------------------------------


def live(name: str, home: str, **attributes):
    """An object that looks like those of another library, with a state_dict read from its file."""
    kind = type(name, (), {"__module__": home})
    made_ = kind()
    vars(made_).update(attributes)
    return made_


@pytest.mark.parametrize("name", DICTIONARIES)
def test_live_dictionaries_are_known_by_what_they_hold(name):
    folder = made.FIXTURES / "dictionary_learning"
    state = torch.load(folder / name / "ae.pt", weights_only=True)
    there = live(
        name, "dictionary_learning.dictionary", dict_size=12, activation_dim=6, state_dict=lambda: state
    )
    sae = aw.SAE.from_object(there)
    compare(sae, load_file(folder / "expected.safetensors"), name)
    assert "dictionary_learning" not in sys.modules


@pytest.mark.parametrize("name", OF_SAELENS)
def test_live_saelens_objects_are_known_by_what_they_hold(name):
    folder = made.FIXTURES / "sae_lens"
    state = load_file(folder / name / "sae_weights.safetensors")
    config = json.loads((folder / name / "cfg.json").read_text())
    there = live(
        "SAE",
        "sae_lens.saes.sae",
        cfg=types.SimpleNamespace(to_dict=lambda: dict(config)),
        state_dict=lambda: state,
        W_enc=state["W_enc"],
    )
    compare(aw.SAE.from_object(there), load_file(folder / "expected.safetensors"), name, tolerance=1e-6)


def test_what_is_no_sae_is_refused_with_its_class():
    with pytest.raises(TypeError, match="not Linear"):
        aw.SAE.from_object(torch.nn.Linear(2, 2))
    there = live("IdentityDict", "dictionary_learning", dict_size=4, activation_dim=4, state_dict=dict)
    with pytest.raises(SAEFormatError, match="IdentityDict of dictionary_learning, which is not supported"):
        aw.SAE.from_object(there)


# -- writing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"site": "blocks.2.hook_resid_post", "model_name": "made/model"},
        {"architecture": "topk", "rescale_acts_by_decoder_norm": True, "site": "encoder.layer.2"},
        {"architecture": "jumprelu", "apply_b_dec_to_input": False, "metadata": {"prepend_bos": False}},
        {"architecture": "gated", "normalize_activations": "layer_norm", "centre": True},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saving_and_loading_gives_identical_bits(tmp_path, options, dtype):
    sae = made.sae(**options).to(dtype)
    sae.maxima = torch.rand(20, dtype=dtype)
    again = aw.SAE.from_pretrained(sae.save_pretrained(tmp_path / "sae"))
    assert again.dtype == dtype
    for name, parameter in sae.named_parameters():
        assert torch.equal(getattr(again, name), parameter), name
    assert torch.equal(again.maxima, sae.maxima)
    before, after = sae.options(), again.options()
    assert {name: after[name] for name in before if name not in ("metadata", "origin")} == {
        name: before[name] for name in before if name not in ("metadata", "origin")
    }
    assert before["metadata"].items() <= after["metadata"].items()
    again.save_pretrained(tmp_path / "sae")  # over itself
    assert sorted(item.name for item in (tmp_path / "sae").iterdir()) == [
        "attnwidgets.safetensors",
        "cfg.json",
        "sae_weights.safetensors",
    ]


def test_what_is_written_is_what_saelens_6_writes(tmp_path):
    theirs = made.FIXTURES / "sae_lens" / "topk_rescaled"
    ours = aw.SAE.from_pretrained(theirs).save_pretrained(tmp_path / "ours")
    config, expected = (json.loads((folder / "cfg.json").read_text()) for folder in (ours, theirs))
    assert {name: config[name] for name in expected if name != "metadata"} == {
        name: value for name, value in expected.items() if name != "metadata"
    }
    assert expected["metadata"].items() <= config["metadata"].items()
    weights, expected = (load_file(folder / "sae_weights.safetensors") for folder in (ours, theirs))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_a_folder_that_holds_something_else_is_not_written_over(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "thesis.txt").write_text("all of it")
    with pytest.raises(FileExistsError, match="is not a saved SAE"):
        made.sae().save_pretrained(tmp_path / "there")
    with pytest.raises(FileNotFoundError, match=r"make .* first"):
        made.sae().save_pretrained(tmp_path / "not" / "there")


# -- refusals ----------------------------------------------------------------------------------


class Bomb:
    """A pickle that acts on its reader."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_with_code_in_it_is_refused_and_not_run(tmp_path):
    folder = tmp_path / "trainer_0"
    shutil.copytree(made.FIXTURES / "dictionary_learning" / "AutoEncoder", folder)
    for content in ({"encoder.weight": Bomb(tmp_path / "harm")}, [Bomb(tmp_path / "harm")]):
        torch.save(content, folder / "ae.pt")
        with pytest.raises(SAEFormatError, match="a pickle can hold code"):
            aw.SAE.from_pretrained(folder)
    (folder / "ae.pt").write_bytes(pickle.dumps(Bomb(tmp_path / "harm"), protocol=2))
    with pytest.raises(SAEFormatError, match="a pickle can hold code"):
        aw.SAE.from_pretrained(folder)
    np.savez(tmp_path / "params.npz", W_enc=np.array([Bomb(tmp_path / "harm")], dtype=object))
    with pytest.raises(SAEFormatError, match="objects in it are not unpickled"):
        aw.SAE.from_pretrained(tmp_path / "params.npz")
    assert not (tmp_path / "harm").exists()


TRANSCODER = {"d_in": 8, "d_sae": 20, "metadata": {"sae_lens_version": "6.0.0"}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TRANSCODER | {"architecture": "transcoder"}, "a transcoder.*architecture 'transcoder'"),
        (TRANSCODER | {"architecture": "jumprelu_skip_transcoder"}, "a transcoder"),
        (TRANSCODER | {"architecture": "temporal"}, "a temporal SAE"),
        (TRANSCODER | {"architecture": "matching_pursuit"}, "matching-pursuit"),
        (TRANSCODER | {"architecture": "matryoshka_batchtopk"}, "in training; save it for inference"),
        (TRANSCODER | {"architecture": "sigmoid"}, "'sigmoid', which is unknown"),
        (TRANSCODER | {"normalize_activations": "covariance_whitening"}, "covariance_whitening"),
        (TRANSCODER | {"metadata": {"hook_head_index": 3}}, "SAE of one head"),
        (TRANSCODER | {"d_in": 9}, "says d_in=9, but the weights say 8"),
        (OLD | {"activation_fn_str": "tanh-relu"}, "'tanh-relu', which is not supported"),
    ],
)
def test_saelens_folders_of_other_things_are_refused_by_name(tmp_path, config, message):
    drawn = made.weights()
    tensors = {name: drawn[name] for name in ("W_enc", "W_dec", "b_enc", "b_dec")}
    folder = made.write_saelens(tmp_path / "sae", tensors, config)
    with pytest.raises(SAEFormatError, match=message):
        aw.SAE.from_pretrained(folder)


def test_a_finetuned_scale_is_refused(tmp_path):
    drawn = made.weights()
    tensors = {name: drawn[name] for name in ("W_enc", "W_dec", "b_enc", "b_dec")}
    folder = made.write_saelens(tmp_path / "sae", tensors | {"scaling_factor": torch.full((20,), 2.0)}, OLD)
    with pytest.raises(SAEFormatError, match="finetuned scale"):
        aw.SAE.from_pretrained(folder)


def test_transcoders_of_the_other_formats_are_refused_by_name(tmp_path):
    drawn = made.weights()
    made.write_gemma_scope(tmp_path / "gemma-scope-2b-pt-transcoders" / "layer_2", drawn)
    with pytest.raises(SAEFormatError, match="transcoder of Gemma Scope"):
        aw.SAE.from_pretrained(tmp_path / "gemma-scope-2b-pt-transcoders" / "layer_2")
    out = {"hf_hook_point_in": "a", "hf_hook_point_out": "b", "architecture": "jump_relu"}
    made.write_gemma_scope_2(tmp_path / "g2", drawn, out)
    with pytest.raises(SAEFormatError, match="transcoder of Gemma Scope 2"):
        aw.SAE.from_pretrained(tmp_path / "g2")
    made.write_gemma_scope_2(tmp_path / "g3", drawn, None, affine_skip_connection=torch.zeros(8, 8))
    with pytest.raises(SAEFormatError, match="transcoder of Gemma Scope 2"):
        aw.SAE.from_pretrained(tmp_path / "g3")
    made.write_llama_scope(tmp_path / "L8TC", drawn, hook_point_out="blocks.1.hook_mlp_out")
    with pytest.raises(SAEFormatError, match="transcoder of Llama Scope"):
        aw.SAE.from_pretrained(tmp_path / "L8TC")
    shutil.copytree(made.FIXTURES / "sparsify" / "layers.1.mlp", tmp_path / "layers.1.mlp")
    config = json.loads((tmp_path / "layers.1.mlp" / "cfg.json").read_text())
    for change, message in (
        ({"transcode": True}, "transcoder of sparsify"),
        ({"activation": "groupmax"}, "'groupmax'"),
        ({"signed": True}, "signed activations"),
    ):
        (tmp_path / "layers.1.mlp" / "cfg.json").write_text(json.dumps(config | change))
        with pytest.raises(SAEFormatError, match=message):
            aw.SAE.from_pretrained(tmp_path / "layers.1.mlp")


def test_a_folder_in_no_known_format_lists_what_was_looked_for(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"?")
    with pytest.raises(SAEFormatError) as caught:
        aw.SAE.from_pretrained(tmp_path)
    for reader in READERS:
        assert reader.name in str(caught.value)
        assert all(file in str(caught.value) for file in reader.files)
    assert "The folder contains model.bin" in str(caught.value)


def test_a_folder_of_several_saes_names_them():
    with pytest.raises(SAEFormatError, match=r"'layers\.1\.mlp': name one as sae_id"):
        aw.SAE.from_pretrained(made.FIXTURES / "sparsify")
    with pytest.raises(FileNotFoundError, match=r"contains no 'layers\.2'.*'layers\.1\.mlp'"):
        aw.SAE.from_pretrained(made.FIXTURES / "sparsify", "layers.2")


def test_damaged_files_are_named(tmp_path):
    folder = tmp_path / "sae"
    shutil.copytree(made.FIXTURES / "sae_lens" / "jumprelu", folder)
    (folder / "sae_weights.safetensors").write_bytes(b"\0" * 30)
    with pytest.raises(SAEFormatError, match=r"sae_weights\.safetensors' is damaged"):
        aw.SAE.from_pretrained(folder)
    (folder / "cfg.json").write_text("{")
    with pytest.raises(SAEFormatError, match=r"cfg\.json' is damaged: it is not JSON"):
        aw.SAE.from_pretrained(folder)


def test_what_is_neither_folder_nor_hub_id_says_what_is_taken():
    with pytest.raises(FileNotFoundError, match="does not exist and is not a hub id"):
        aw.SAE.from_pretrained("nothing-here")
    with pytest.raises(TypeError, match=r"takes no keyword 'saeid'.*Did you mean 'sae_id'"):
        aw.SAE.from_pretrained("nothing-here", saeid="x")


def test_a_hub_that_cannot_be_reached_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="could not be downloaded from the hub"):
        aw.SAE.from_pretrained("someone/no-such-sae")


class Hub:
    """A hub of a single repository, as huggingface_hub would show it."""

    def __init__(self, root) -> None:
        self.root = root
        self.asked: list[str] = []

    def list_repo_files(self, name, revision=None):
        return [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()]

    def snapshot_download(self, name, revision=None, allow_patterns=(), **_):
        self.asked += allow_patterns
        return str(self.root)


def test_of_a_hub_repository_only_the_saes_own_files_are_asked_for(monkeypatch, tmp_path):
    made.write_gemma_scope(tmp_path / "gemma-scope-2b-pt-res" / "layer_1" / "width_16k", made.weights())
    hub = Hub(tmp_path / "gemma-scope-2b-pt-res")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.snapshot_download)
    sae = aw.SAE.from_pretrained("google/gemma-scope-2b-pt-res", "layer_1/width_16k")
    assert sae.site == "blocks.1.hook_resid_post"
    assert all(pattern.startswith("layer_1/width_16k/") and "*" not in pattern for pattern in hub.asked)
    with pytest.raises(FileNotFoundError, match="'layer_1/width_16k': name one as sae_id"):
        aw.SAE.from_pretrained("google/gemma-scope-2b-pt-res")
