from __future__ import annotations

import types
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnwidgets as aw
from attnwidgets.tracing.hooks.hook_point import resolve_hook_point
from tests.examples import examples
from tests.tracing import tiny

from .steered import IDS, SITE, big_llama, logits, sae_of

NORMALISED = [
    {},
    {"normalize_activations": "layer_norm"},
    {"architecture": "topk"},
    {"architecture": "gated"},
]


@pytest.fixture(scope="module")
def llama():
    return big_llama()


def replaced(model, change, ids=IDS, site: str = SITE) -> torch.Tensor:
    """The logits when the states at a site are replaced by a plain hook of torch."""

    def after(_, __, output):
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    handle = model.get_submodule(resolve_hook_point(model, site).module).register_forward_hook(after)
    try:
        return logits(model, ids)
    finally:
        handle.remove()


def with_error(sae: aw.SAE, edit, h: torch.Tensor) -> torch.Tensor:
    """decode(a, edited) + (h - decode(a)): the definition, where aw.steer adds a difference."""
    a = sae.encode(h)
    return sae.decode(edit(a.clone()), h) + (h - sae.decode(a, h))


def setting(j, value):
    def edit(a):
        a[..., j] = value
        return a

    return edit


@pytest.mark.parametrize("options", NORMALISED)
@pytest.mark.parametrize("mode", ["clamp", "clamp_active", "scale", "ablate", "add", "splice"])
def test_every_mode_is_what_it_says(llama, options, mode):
    sae, j, k = sae_of(**options), 4, 1.7
    with torch.no_grad():
        a = sae.encode(llama(input_ids=IDS, output_hidden_states=True).hidden_states[1])[..., j]
    assert 0 < int((a > 0).sum()) < a.numel()  # or modes could not be told apart
    value = k * float(sae.maxima[j])

    def active(a):
        a[..., j] = torch.where(a[..., j] > 0, value, 0.0)
        return a

    def scaled(a):
        a[..., j] *= k
        return a

    def added(a):
        a[..., j] += value
        return a

    expected = {
        "clamp": lambda h: with_error(sae, setting(j, value), h),
        "clamp_active": lambda h: with_error(sae, active, h),
        "scale": lambda h: with_error(sae, scaled, h),
        "ablate": lambda h: with_error(sae, setting(j, 0.0), h),
        "add": lambda h: with_error(sae, added, h),
        "splice": lambda h: sae.decode(setting(j, value)(sae.encode(h).clone()), h),
    }[mode]
    with aw.steer(llama, sae, j, None if mode == "ablate" else k, mode=mode):
        result = logits(llama)
    torch.testing.assert_close(result, replaced(llama, expected), atol=1e-5, rtol=1e-5)
    assert float((result - logits(llama)).abs().max()) > 1e-2


def test_clamping_with_the_error_kept_is_a_difference_along_the_direction(llama):
    sae, j = sae_of(), 4
    value = 2 * float(sae.maxima[j])

    def delta(h):
        return h + (value - sae.encode(h)[..., j : j + 1]) * sae.W_dec[j]

    expected = replaced(llama, delta)
    with aw.steer(llama, sae, j, 2.0):
        torch.testing.assert_close(logits(llama), expected, atol=5e-6, rtol=1e-5)


@pytest.mark.slow
@given(j=st.integers(0, 19), options=st.sampled_from(NORMALISED))
@settings(max_examples=examples(15))
def test_what_keeps_an_activation_changes_nothing(j, options):
    model, sae = big_llama(), sae_of(**options)
    plain = logits(model)
    with aw.steer(model, sae, j, 1.0, mode="scale"):
        assert torch.equal(logits(model), plain)
    with aw.steer(model, sae, j, 1.0, maximum=0.0):  # silent features stay silent, others do not
        clamped = logits(model)
    with aw.steer(model, sae, j, mode="ablate"):
        torch.testing.assert_close(logits(model), clamped, atol=1e-6, rtol=0)
    first_token = IDS[:1, :1]  # of a single token, so that a single value keeps it
    with torch.no_grad():
        h = model(input_ids=first_token, output_hidden_states=True).hidden_states[1]
    expected = logits(model, first_token)
    with aw.steer(model, sae, j, 1.0, maximum=float(sae.encode(h)[0, 0, j])):
        torch.testing.assert_close(logits(model, first_token), expected, atol=1e-5, rtol=1e-5)


def test_several_features_change_at_once_from_what_they_all_were(llama):
    sae = sae_of()

    def both(a):
        a[..., 4], a[..., 9] = 0.5 * sae.maxima[4], 2 * sae.maxima[9]
        return a

    expected = replaced(llama, lambda h: with_error(sae, both, h))
    with aw.steer(llama, sae, [4, 9], [0.5, 2.0]):
        torch.testing.assert_close(logits(llama), expected, atol=1e-5, rtol=1e-5)


def test_a_bare_splice_is_the_reconstruction(llama):
    sae = sae_of()
    expected = replaced(llama, sae)
    with aw.steer(llama, sae, None, mode="splice"):
        torch.testing.assert_close(logits(llama), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "Gemma 2", "GPT-NeoX", "OPT", "ModernBERT", "ALBERT"])
@pytest.mark.parametrize("hook", ["hook_resid_post", "hook_resid_pre", "hook_mlp_out", "attn.hook_z"])
def test_every_kind_of_site_is_steered(family, hook):
    model, sae = tiny.build(tiny.TEXT[family]), sae_of()
    plain = logits(model)
    with aw.steer(model, sae, [3, 4], 3.0, site=f"blocks.1.{hook}") as steering:
        steered = logits(model)
    assert float((steered - plain).abs().max()) > 1e-4
    assert steering.relative_change > 0
    assert torch.equal(logits(model), plain)


def test_a_shared_block_is_steered_at_one_of_its_calls():
    model, sae = tiny.build(tiny.TEXT["ALBERT"]), sae_of()
    with torch.no_grad(), aw.steer(model, sae, 4, 2.0, site="blocks.1.hook_resid_post"):
        steered = model(input_ids=IDS, output_hidden_states=True).hidden_states
    with torch.no_grad():
        plain = model(input_ids=IDS, output_hidden_states=True).hidden_states
    assert torch.equal(steered[1], plain[1])
    assert not torch.equal(steered[3], plain[3])


def test_what_else_looks_at_the_states_sees_them_steered(llama):
    sae = sae_of()
    with torch.no_grad():
        plain = llama(input_ids=IDS, output_hidden_states=True).hidden_states
        with aw.steer(llama, sae, 4, 2.0):
            steered = llama(input_ids=IDS, output_hidden_states=True).hidden_states
    assert torch.equal(steered[0], plain[0])
    expected = with_error(sae, setting(4, 2 * float(sae.maxima[4])), plain[1])
    torch.testing.assert_close(steered[1], expected, atol=5e-5, rtol=1e-5)


# -- coming back -------------------------------------------------------------------------------


def hooks(model):
    return [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_hooks_are_gone_after_an_exception(llama, error):
    before, plain = hooks(llama), logits(llama)
    with pytest.raises(error), aw.steer(llama, sae_of(), 4, 2.0):
        raise error
    assert hooks(llama) == before
    assert torch.equal(logits(llama), plain)
    with (
        pytest.raises(ValueError, match="is 32 wide"),
        aw.steer(llama, sae_of(8), 4, site="model.layers.0.mlp"),
    ):
        logits(llama)  # an exception from inside a pass
    assert hooks(llama) == before


def test_steerings_nest_and_can_be_used_again(llama):
    sae = sae_of()
    outer, inner = aw.steer(llama, sae, 4, 2.0), aw.steer(llama, sae, 9, mode="ablate")
    with outer:
        alone = logits(llama)
        with inner:
            both = logits(llama)
        assert torch.equal(logits(llama), alone)
        with pytest.raises(RuntimeError, match="already active"):
            outer.__enter__()
    assert not torch.equal(both, alone)
    with outer:
        assert torch.equal(logits(llama), alone)


def test_mode_gradients_and_precision_of_the_model_stay(llama):
    llama.train()
    with aw.steer(llama, sae_of(), 4, 2.0):
        assert llama.training
        llama(input_ids=IDS).logits.sum().backward()
    assert llama.model.layers[0].mlp.down_proj.weight.grad is not None
    llama.zero_grad(set_to_none=True)
    llama.eval()
    half = big_llama().bfloat16()
    with aw.steer(half, sae_of(), 4, 2.0):
        assert logits(half).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.skipif(
    torch.__version__.startswith("2.6."),
    reason="torch 2.6 cannot compile a Llama of transformers 5: its states are lost, steered or not",
)
def test_a_compiled_model_is_steered_too(llama):
    compiled = torch.compile(llama, backend="eager")
    plain = logits(compiled)
    with aw.steer(llama, sae_of(), 4, 2.0):
        expected = logits(llama)
    with aw.steer(compiled, sae_of(), 4, 2.0):
        torch.testing.assert_close(logits(compiled), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(logits(compiled), plain)


def test_the_size_of_the_change_is_said(llama):
    sae = sae_of()
    with torch.no_grad():
        h = llama(input_ids=IDS, output_hidden_states=True).hidden_states[1]
    with aw.steer(llama, sae, 4, 1.0, mode="add") as steering:
        assert steering.relative_change == 0
        logits(llama)
    ratio = float((sae.maxima[4] * sae.W_dec[4].norm() / h.norm(dim=-1)).mean())
    assert steering.relative_change == pytest.approx(ratio, rel=1e-4)
    with aw.steer(llama, sae, 4, 1000.0) as steering:
        logits(llama)
    assert "far from anything it has seen" in steering.warning
    with aw.steer(llama, sae, 4, 1000.0, positions="generated") as steering:
        logits(llama)
    assert (steering.relative_change, steering.warning) == (0.0, "")


# -- requests ---------------------------------------------------------------------------------


def test_maxima_come_from_the_sae_numbers_or_statistics(llama):
    sae = sae_of()
    maxima = sae.maxima.clone()
    with aw.steer(llama, sae, [4, 9], 2.0):
        expected = logits(llama)
    bare = sae_of()
    bare.maxima = None
    for maximum in (maxima[[4, 9]].tolist(), types.SimpleNamespace(maxima=maxima.numpy())):
        with aw.steer(llama, bare, [4, 9], 2.0, maximum=maximum):
            torch.testing.assert_close(logits(llama), expected)
    with pytest.warns(UserWarning, match="maxima are not known"):
        unknown = aw.steer(llama, bare, 4, 2.0)
    with unknown:
        result = logits(llama)
    with aw.steer(llama, bare, 4, 2.0, maximum=1.0):
        assert torch.equal(logits(llama), result)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aw.steer(llama, bare, 4, 2.0, mode="scale")  # needs none


@pytest.mark.parametrize(
    ("feature", "scale", "options", "error", "message"),
    [
        (20, 1.0, {}, IndexError, "feature 20 is out of range: there are features 0 to 19"),
        (4, 1.0, {"mode": "clmp"}, ValueError, "Did you mean 'clamp'"),
        (4, None, {"mode": "scale"}, ValueError, 'mode "scale" needs a scale'),
        (4, 2.0, {"mode": "ablate"}, ValueError, "takes no scale"),
        (None, 1.0, {}, ValueError, "only 'splice' works without one"),
        (None, 1.0, {"mode": "splice"}, ValueError, "nothing to set"),
        (
            [4, 5],
            [1.0, 2.0, 3.0],
            {},
            ValueError,
            "scale has 3 numbers; pass one, or one for each feature",
        ),
        (4, float("nan"), {}, ValueError, "scale must be finite"),
        (4, 1.0, {"maximum": torch.ones(3)}, ValueError, "maximum has 3 numbers"),
        (4, 1.0, {"positions": "first"}, ValueError, "positions must be"),
        (4, 1.0, {"positions": "promt"}, ValueError, "Did you mean 'prompt'"),
        (4, 1.0, {"positions": []}, ValueError, "positions is empty"),
        (4, 1.0, {"positions": slice(5, 0, -1)}, ValueError, "must be positive"),
        (4, 1.0, {"positions": 1.5}, TypeError, "positions must be numbers"),
        (4, 1.0, {"skip_special": "[CLS]"}, TypeError, "must be a tokenizer or token ids"),
        (4, 1.0, {"site": "blocks.9.hook_resid_post"}, ValueError, "block 9 does not exist"),
    ],
)
def test_what_does_not_fit_is_named_before_anything_runs(llama, feature, scale, options, error, message):
    before = hooks(llama)
    with pytest.raises(error, match=message):
        aw.steer(llama, sae_of(), feature, scale, **options)
    assert hooks(llama) == before


def test_another_models_sae_is_refused_with_both_widths(llama):
    with pytest.raises(
        ValueError, match=r"width 8, but 'blocks.0.hook_resid_post' of LlamaForCausalLM is 32 wide"
    ):
        aw.steer(llama, sae_of(8), 4, 1.0)


def test_a_site_that_is_not_reached_is_said(llama):
    class Skipping(torch.nn.Module):
        def __init__(self, inner) -> None:
            super().__init__()
            self.inner, self.unused = inner, torch.nn.Linear(32, 32)

        def forward(self, **inputs):
            return self.inner(**inputs)

    model = Skipping(llama)
    steering = aw.steer(model, sae_of(), 4, 2.0, site="unused")
    with steering:
        logits(model.inner)  # the model itself is not run: nothing to complain of
    steering.__enter__()
    model(input_ids=IDS)
    with pytest.warns(RuntimeWarning, match="nothing was steered: no pass of Skipping reached 'unused'"):
        steering.__exit__(None, None, None)
