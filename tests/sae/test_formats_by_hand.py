"""Files and objects in all variants of a format, against the format's definition, by hand."""

from __future__ import annotations

import json
import sys
import types

import pytest
import torch
from safetensors.torch import save_file

import attnwidgets as aw
from attnwidgets.sae.formats import SAEFormatError

from . import made
from .by_hand import by_hand, rebuilt

V6 = {"d_in": 8, "d_sae": 20, "dtype": "float32", "device": "cpu", "reshape_activations": "none"}


def tensors_of(architecture: str, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    drawn = made.weights()
    return {
        name: drawn[name].to(dtype) for name in ("W_enc", "W_dec", "b_dec", *made.PARAMETERS[architecture])
    }


def require(sae: aw.SAE, expected: aw.SAE, h: torch.Tensor | None = None) -> None:
    """The numbers of a folder are those of an SAE with given options, computed by hand."""
    h = made.states() if h is None else h
    a = sae.encode(h)
    assert 0 < int((a > 0).sum()) < a.numel()
    torch.testing.assert_close(a.double(), by_hand(expected, h), atol=1e-5, rtol=0)
    torch.testing.assert_close(sae.decode(a).double(), rebuilt(expected, a, h), atol=1e-5, rtol=0)


@pytest.mark.parametrize("normalised", ["none", "layer_norm", "constant_norm_rescale"])
@pytest.mark.parametrize("subtracted", [True, False, None])
@pytest.mark.parametrize("architecture", ["standard", "topk", "jumprelu", "gated"])
def test_every_architecture_of_saelens_with_every_normalisation(
    tmp_path, architecture, subtracted, normalised
):
    config = V6 | {"architecture": architecture, "normalize_activations": normalised}
    config |= {"metadata": {"hook_name": "blocks.2.hook_mlp_out"}}
    if subtracted is not None:  # it is subtracted where nothing is said
        config["apply_b_dec_to_input"] = subtracted
    options = {"apply_b_dec_to_input": subtracted is not False, "normalize_activations": normalised}
    if architecture == "topk":
        config |= {"k": 4, "rescale_acts_by_decoder_norm": bool(subtracted)}
        options |= {"k": 4, "rescale_acts_by_decoder_norm": bool(subtracted)}
    sae = aw.SAE.from_pretrained(made.write_saelens(tmp_path / "sae", tensors_of(architecture), config))
    require(sae, made.sae(architecture, **options))
    assert sae.site == "blocks.2.hook_mlp_out"


def test_a_jumprelu_whose_scale_is_not_folded_keeps_its_threshold(tmp_path):
    config = V6 | {"architecture": "jumprelu", "normalize_activations": "expected_average_only_in"}
    folder = made.write_saelens(tmp_path / "sae", tensors_of("jumprelu"), config | {"metadata": {}})
    h, drawn = made.states(), made.weights()
    with pytest.warns(UserWarning, match="expected_average_only_in"):
        require(aw.SAE.from_pretrained(folder), made.sae("jumprelu"))  # as SAELens does at run time
    folded = aw.SAE.from_pretrained(folder, input_scale=0.5)
    p = ((0.5 * h - drawn["b_dec"]).double() @ drawn["W_enc"].double()) + drawn["b_enc"]
    a = torch.where(p > drawn["threshold"], p.relu(), 0)
    torch.testing.assert_close(folded.encode(h).double(), a, atol=1e-5, rtol=0)
    expected = (a @ drawn["W_dec"].double() + drawn["b_dec"]) / 0.5
    torch.testing.assert_close(folded(h).double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_with_in_float32(tmp_path, dtype):
    config = V6 | {"architecture": "jumprelu", "dtype": str(dtype), "metadata": {}}
    halves = tensors_of("jumprelu", dtype)
    sae = aw.SAE.from_pretrained(made.write_saelens(tmp_path / "sae", halves, config))
    whole = {name: tensor.float() for name, tensor in halves.items()}
    require(sae, aw.SAE(**whole, architecture="jumprelu"))


@pytest.mark.parametrize(
    "config",
    [
        {"hook_name": "blocks.3.hook_resid_pre", "model_name": "gpt2-small", "prepend_bos": False},
        {"hook_point": "blocks.3.hook_resid_pre", "model_name": "gpt2-small", "prepend_bos": False},
        {
            "metadata": {
                "hook_name": "blocks.3.hook_resid_pre",
                "model_name": "gpt2-small",
                "prepend_bos": False,
            }
        },
        {
            "hook_name": "blocks.3.hook_resid_pre",
            "metadata": {"hook_name": None, "model_name": "gpt2-small", "prepend_bos": False},
        },
    ],
    ids=["flat", "older", "version 6", "between"],
)
def test_site_and_model_are_found_wherever_a_version_kept_them(tmp_path, config):
    sae = aw.SAE.from_pretrained(
        made.write_saelens(tmp_path / "sae", tensors_of("standard"), {"d_in": 8, "d_sae": 20} | config)
    )
    assert (sae.site, sae.model_name) == ("blocks.3.hook_resid_pre", "gpt2-small")
    assert sae.metadata["prepend_bos"] is False


@pytest.mark.parametrize("where", [{"activation_fn_kwargs": {"k": 4}}, {"k": 4}])
def test_an_older_topk_says_its_k_in_one_of_two_places(tmp_path, where):
    config = {"d_in": 8, "d_sae": 20, "activation_fn_str": "topk"} | where
    sae = aw.SAE.from_pretrained(made.write_saelens(tmp_path / "sae", tensors_of("topk"), config))
    require(sae, made.sae("topk", k=4))


@pytest.mark.parametrize("function", ["tanh_relu", "tanh-relu", "sigmoid"])
def test_other_activation_functions_are_refused_by_name(tmp_path, function):
    config = {"d_in": 8, "d_sae": 20, "activation_fn": function}
    folder = made.write_saelens(tmp_path / "sae", tensors_of("standard"), config)
    with pytest.raises(SAEFormatError, match=f"'{function}', which is not supported"):
        aw.SAE.from_pretrained(folder)


def test_heads_of_a_hook_z_sae_lie_side_by_side(tmp_path):
    config = V6 | {"reshape_activations": "hook_z", "metadata": {"hook_name": "blocks.1.attn.hook_z"}}
    sae = aw.SAE.from_pretrained(made.write_saelens(tmp_path / "sae", tensors_of("standard"), config))
    heads = made.states().reshape(5, 6, 4, 2)
    a = sae.encode(heads)
    assert a.shape == (5, 6, 20)
    expected = by_hand(made.sae(), made.states()).reshape(5, 6, 20)
    torch.testing.assert_close(a.double(), expected, atol=1e-5, rtol=0)
    assert sae(heads).shape == heads.shape
    saved = json.loads((sae.save_pretrained(tmp_path / "again") / "cfg.json").read_text())
    assert saved["reshape_activations"] == "hook_z"


# -- the path of a folder ----------------------------------------------------------------------


def gemma_scope(folder):
    return aw.SAE.from_pretrained(made.write_gemma_scope(folder, made.weights()))


def test_the_readers_own_folders_say_nothing_of_an_sae(tmp_path):
    home = tmp_path / "embedding_layer_3_transcoder" / "clt" / "embedding"
    path = ("layer_20", "width_16k", "average_l0_71")
    sae = gemma_scope(home.joinpath("gemma-scope-2b-pt-res", *path))
    assert sae.site == "blocks.20.hook_resid_post"
    assert torch.equal(sae.W_dec, made.weights()["W_dec"])
    plain = gemma_scope(home.joinpath("mine", *path))
    assert torch.equal(plain.W_dec, made.weights()["W_dec"])
    second = made.write_gemma_scope_2(home / "resid_post" / "layer_7_width_16k", made.weights(), None)
    assert aw.SAE.from_pretrained(second).site == "blocks.7.hook_resid_post"


def test_embeddings_are_rescaled_without_the_repositorys_name_too(tmp_path):
    sae = gemma_scope(tmp_path / "embedding" / "width_4k" / "average_l0_6")
    torch.testing.assert_close(sae.W_dec, made.weights()["W_dec"] * 8**0.5)
    assert sae.site == "hook_embed"


@pytest.mark.parametrize(
    ("layer", "submodule", "site"),
    [
        (3, "resid_post_layer_3", "blocks.3.hook_resid_post"),
        (3, "resid_pre_layer_3", "blocks.3.hook_resid_pre"),
        (3, "mlp_out_layer3", "blocks.3.hook_mlp_out"),
        (3, "attn_out_layer3", "blocks.3.hook_attn_out"),
        (-1, "embed", "hook_embed"),
        (None, "", ""),
    ],
)
def test_dictionaries_say_their_site_by_submodule_and_layer(tmp_path, layer, submodule, site):
    drawn = made.weights()
    torch.save(
        {
            "encoder.weight": drawn["W_enc"].T.contiguous(),
            "encoder.bias": drawn["b_enc"],
            "decoder.weight": drawn["W_dec"].T.contiguous(),
            "b_dec": drawn["b_dec"],
            "k": torch.tensor(9),
            "threshold": torch.tensor(0.4),
        },
        tmp_path / "ae.pt",
    )
    trainer = {"dict_class": "BatchTopKSAE", "layer": layer, "submodule_name": submodule, "k": 9}
    (tmp_path / "config.json").write_text(json.dumps({"trainer": trainer}))
    sae = aw.SAE.from_pretrained(tmp_path)
    require(sae, made.sae("jumprelu").replaced(threshold=torch.full((20,), 0.4)))
    assert sae.site == site


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sparsify_subtracts_its_bias_whatever_its_options(tmp_path, dtype):
    folder = tmp_path / "gpt_neox.layers.4"
    folder.mkdir()
    halves = tensors_of("topk", dtype)
    state = {"encoder.weight": halves["W_enc"].T, "encoder.bias": halves["b_enc"]}
    state |= {"W_dec": halves["W_dec"], "b_dec": halves["b_dec"]}
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "sae.safetensors")
    config = {"expansion_factor": 32, "normalize_decoder": False, "num_latents": 0, "k": 3, "d_in": 8}
    (folder / "cfg.json").write_text(json.dumps(config | {"multi_topk": True, "signed": False}))
    sae = aw.SAE.from_pretrained(folder)
    require(sae, aw.SAE(**{n: t.float() for n, t in halves.items()}, architecture="topk", k=3))
    assert sae.site == "gpt_neox.layers.4"


# -- live objects ------------------------------------------------------------------------------


def live(config: dict, state: dict):
    """A sae_lens object by its contents."""
    there = types.SimpleNamespace(cfg=types.SimpleNamespace(to_dict=lambda: dict(config)))
    there.state_dict, there.W_enc = lambda: dict(state), state["W_enc"]
    return there


def test_a_jumprelu_sae_in_training_is_read_by_the_logarithm_of_its_threshold():
    state = tensors_of("jumprelu")
    state["log_threshold"] = state.pop("threshold").log()
    config = V6 | {"architecture": "jumprelu", "normalize_activations": "none", "metadata": {}}
    require(aw.SAE.from_object(live(config, state)), made.sae("jumprelu"))


def test_a_live_object_with_a_scale_that_is_not_folded_says_so():
    config = V6 | {"normalize_activations": "expected_average_only_in", "metadata": {"model_name": "m"}}
    with pytest.warns(UserWarning, match=r"sae\.fold_input_scale\(constant\)") as caught:
        sae = aw.SAE.from_object(live(config, tensors_of("standard")))
    assert caught[0].filename == __file__
    require(sae, made.sae())
    assert sae.metadata == {"model_name": "m"}
    assert "sae_lens" not in sys.modules


def test_numbers_of_an_sae_do_not_depend_on_how_states_lie():
    sae, h = made.sae("jumprelu", normalize_activations="layer_norm"), made.states()
    torch.testing.assert_close(sae.encode(h.T.contiguous().T), sae.encode(h))
    torch.testing.assert_close(sae.encode(h[3]), sae.encode(h)[3])
