from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnwidgets as aw
from tests.examples import examples

from . import made
from .by_hand import by_hand, rebuilt

CASES = {
    "standard": {},
    "standard without b_dec": {"apply_b_dec_to_input": False},
    "topk": {"architecture": "topk"},
    "topk rescaled": {"architecture": "topk", "rescale_acts_by_decoder_norm": True},
    "jumprelu": {"architecture": "jumprelu", "apply_b_dec_to_input": False},
    "gated": {"architecture": "gated"},
    "layer norm": {"normalize_activations": "layer_norm"},
    "constant norm": {"architecture": "jumprelu", "normalize_activations": "constant_norm_rescale"},
    "centred": {"centre": True},
    "centred layer norm": {"centre": True, "normalize_activations": "layer_norm", "architecture": "gated"},
}
each = pytest.mark.parametrize("options", CASES.values(), ids=CASES)


@each
def test_activations_and_reconstructions_follow_the_definitions(options):
    sae, h = made.sae(**options), made.states()
    a = sae.encode(h)
    assert 0 < int((a > 0).sum()) < a.numel()
    torch.testing.assert_close(a.double(), by_hand(sae, h), atol=1e-5, rtol=0)
    torch.testing.assert_close(sae.decode(a).double(), rebuilt(sae, a, h), atol=1e-5, rtol=0)
    torch.testing.assert_close(sae(h.reshape(5, 6, 8)), sae.decode(a, h).reshape(5, 6, 8))


@pytest.mark.parametrize("name", ["synth_standard", "synth_standard_nobdec", "synth_topk", "synth_gated"])
def test_encoding_equals_sae_lens_to_1e_6(shared, name):
    folder = shared / "reference" / "sae"
    sae = aw.SAE.from_pretrained(folder / name)
    expected = np.load(folder / f"{name}.npz")
    h = torch.tensor(expected["x"])
    a = sae.encode(h)
    assert np.abs(a.numpy() - expected["feature_acts"]).max() <= 1e-6
    assert np.abs(sae.decode(a).numpy() - expected["recon"]).max() <= 5e-6
    doubled = sae.double()
    assert np.abs(doubled.encode(h.double()).numpy() - expected["feature_acts_f64"]).max() <= 1e-9
    assert sae.site == "blocks.2.hook_resid_post"


@each
def test_a_slice_of_features_is_what_all_of_them_give(options):
    sae, h = made.sae(**options), made.states()
    chosen = [17, 3, 4]
    for activation in ("raw", "lecture"):
        whole = sae.encode(h, activation=activation)[:, chosen]
        torch.testing.assert_close(sae.encode(h, activation=activation, features=chosen), whole)
    assert int((sae.encode(h, features=slice(0, 10)) > 0).sum()) < int((sae.encode(h) > 0).sum())


@each
def test_the_lectures_activation_is_the_length_of_what_a_feature_adds(options):
    sae, h = made.sae(**options), made.states()
    a = sae.encode(h)
    added = sae.directions.norm(dim=-1) * a
    torch.testing.assert_close(sae.encode(h, activation="lecture"), added)
    if not sae.per_token:
        off = a.clone()
        off[:, 7] = 0
        moved = (sae.decode(a) - sae.decode(off)).norm(dim=-1)
        torch.testing.assert_close(sae.encode(h, activation="lecture", features=7)[:, 0], moved)


@given(
    architecture=st.sampled_from(["standard", "topk", "jumprelu", "gated"]),
    subtracted=st.booleans(),
    rescaled=st.booleans(),
    scale=st.floats(0.01, 100),
    seed=st.integers(0, 50),
)
@settings(max_examples=examples(40))
def test_folding_changes_neither_reconstructions_nor_the_lectures_activations(
    architecture, subtracted, rescaled, scale, seed
):
    rescaled = rescaled and architecture == "topk"
    sae = made.sae(
        architecture, seed=seed, apply_b_dec_to_input=subtracted, rescale_acts_by_decoder_norm=rescaled
    ).double()
    h = made.states(seed=seed).double()
    scaled = sae.fold_input_scale(scale)
    torch.testing.assert_close(scaled.encode(h), sae.encode(scale * h))
    torch.testing.assert_close(scaled(h), sae(scale * h) / scale)
    if architecture == "topk" and not rescaled:
        with pytest.raises(ValueError, match="other features would be the k largest"):
            sae.fold_decoder_norm()
        return
    unit = sae.fold_decoder_norm()
    torch.testing.assert_close(unit.W_dec.norm(dim=-1), torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(unit(h), sae(h))
    torch.testing.assert_close(unit.encode(h), sae.encode(h, activation="lecture"))
    torch.testing.assert_close(unit.encode(h, activation="lecture"), sae.encode(h, activation="lecture"))


@pytest.mark.parametrize("subtracted", [True, False])
@pytest.mark.parametrize("architecture", ["standard", "jumprelu", "topk"])
def test_the_lectures_form_reads_states_as_they_are(architecture, subtracted):
    rescaled = architecture == "topk"
    sae = made.sae(
        architecture, apply_b_dec_to_input=subtracted, rescale_acts_by_decoder_norm=rescaled
    ).double()
    h = made.states().double()
    W_enc, b_enc, W_dec, b_dec = sae.lecture()
    assert W_enc.shape == (20, 8)
    assert W_dec.shape == (8, 20)
    f = (h @ W_enc.T + b_enc).relu()
    if architecture == "topk":
        f = torch.where(f >= f.topk(5).values[:, -1:], f, 0)
    if architecture == "jumprelu":
        f = torch.where(f > sae.threshold, f, 0)
    torch.testing.assert_close(f, sae.encode(h))
    torch.testing.assert_close(f @ W_dec.T + b_dec, sae(h))
    torch.testing.assert_close(f * W_dec.norm(dim=0), sae.encode(h, activation="lecture"))


@pytest.mark.parametrize("options", [{"architecture": "gated"}, {"normalize_activations": "layer_norm"}])
def test_what_has_no_lecture_form_says_so(options):
    with pytest.raises(ValueError, match="no lecture form"):
        made.sae(**options).lecture()


def test_an_edited_tensor_of_a_normalising_sae_needs_its_states():
    sae, h = made.sae(normalize_activations="layer_norm"), made.states()
    a = sae.encode(h)
    sae.encode(2 * h)  # must not be mixed up with the first
    torch.testing.assert_close(sae.decode(a), sae.decode(a.clone(), h))
    with pytest.raises(ValueError, match=r"decode\(a, h\) needs the states"):
        sae.decode(a.clone())


def test_heads_side_by_side_are_read_as_well():
    sae, h = made.sae(site="blocks.1.attn.hook_z"), made.states()
    torch.testing.assert_close(sae.encode(h.reshape(30, 2, 4)), sae.encode(h))
    assert sae(h.reshape(30, 2, 4)).shape == (30, 2, 4)


def test_half_precision_states_are_read_in_the_saes_precision():
    sae, h = made.sae(), made.states()
    assert sae.encode(h.bfloat16()).dtype == torch.float32
    torch.testing.assert_close(sae.encode(h.bfloat16()), sae.encode(h.bfloat16().float()))


def test_nothing_requires_a_gradient_until_asked_to():
    sae = made.sae()
    assert not sae.encode(made.states()).requires_grad
    sae.requires_grad_()
    sae(made.states()).sum().backward()
    assert sae.W_enc.grad is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "topk"}, r"k=None: a topk SAE needs k from 1 to 20"),
        ({"architecture": "topk", "k": 21}, "from 1 to 20"),
        ({"k": 3}, "other architectures take none"),
        ({"architecture": "jumprel"}, "Did you mean 'jumprelu'"),
        ({"normalize_activations": "layernorm"}, "Did you mean 'layer_norm'"),
        ({"rescale_acts_by_decoder_norm": True}, "only available for topk"),
        ({"threshold": 0.1}, "a standard SAE has no threshold"),
        ({"architecture": "gated"}, "gated SAE"),
        ({"b_dec": torch.zeros(9)}, r"b_dec has shape \(9,\); with this W_enc it must be \(8,\)"),
        ({"W_dec": torch.zeros(8, 20)}, r"W_dec has shape \(8, 20\).*\(20, 8\)"),
        ({"b_enc": torch.full((20,), float("nan"))}, "b_enc contains NaN"),
    ],
)
def test_weights_that_do_not_fit_are_named(changes, message):
    drawn = made.weights()
    given_ = {name: drawn[name] for name in ("W_enc", "W_dec", "b_dec", "b_enc")} | changes
    with pytest.raises(ValueError, match=message):
        aw.SAE(**given_)


def test_states_of_another_width_are_refused_with_both_widths():
    with pytest.raises(ValueError, match="h is 12 wide, but the SAE reads states of width 8"):
        made.sae().encode(torch.zeros(3, 12))
    with pytest.raises(ValueError, match="a has 8 features, but the SAE has 20"):
        made.sae().decode(torch.zeros(3, 8))
    with pytest.raises(IndexError, match="feature 20 is out of range"):
        made.sae().encode(made.states(), features=[20])
    with pytest.raises(ValueError, match="Did you mean 'lecture'"):
        made.sae().encode(made.states(), activation="lectures")


def test_an_sae_says_what_it_is_and_travels():
    sae = made.sae("topk", site="blocks.2.hook_resid_post", model_name="made/model")
    assert repr(sae) == "SAE(topk k=5, 8 -> 20, blocks.2.hook_resid_post of made/model)"
    again = pickle.loads(pickle.dumps(sae))
    assert torch.equal(again.encode(made.states()), sae.encode(made.states()))
    assert aw.SAE.from_object(sae) is sae


@pytest.mark.slow
def test_opening_the_package_of_saes_does_not_load_torch():
    probe = "import attnwidgets.sae, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
