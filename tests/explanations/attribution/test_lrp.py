"""Relevance against the authors' code, and the guarantees of `aw.lrp`."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

import attnwidgets as aw
from attnwidgets.explanations.attribution.lrp import lrp
from attnwidgets.explanations.results.conservation_note import accounts_of, sums_of, verdict_of
from attnwidgets.relevance.backward import single_activations
from attnwidgets.relevance.rules import Rules
from attnwidgets.tracing.recording.borrow import implementation, twin_of
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.test_borrow import mixed_model, state_of
from tests.tracing.test_frames import Bins, noise

IDS = [5, 17, 31, 9]


def apart(actual: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(actual, np.float64) - expected).max())


# The authors' numbers


@pytest.fixture(scope="module")
def folder(shared):
    return shared / "reference" / "lrp"


@pytest.fixture(scope="module")
def tiny_llama_trace(folder):
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder / "models" / "tiny_llama").eval()
    return trace(model, None, np.load(folder / "lxt_llama_attnLRP.npz")["input_ids"].tolist())


@pytest.mark.parametrize(("rule", "file"), [("attnlrp", "lxt_llama_attnLRP"), ("cp_lrp", "lxt_llama_cp_LRP")])
def test_the_authors_numbers_on_a_llama(folder, tiny_llama_trace, rule, file):
    theirs = np.load(folder / f"{file}.npz")
    result = lrp(tiny_llama_trace, 19, rule=rule)
    assert apart(result.values, theirs["relevance"]) < 1e-5
    assert apart(result.map.values[:, 0], theirs["relevance_layers"]) < 1e-5
    contrast = lrp(tiny_llama_trace, 19, 109, rule=rule)
    assert apart(contrast.values, theirs["contrastive_relevance"]) < 1e-5


def test_the_authors_numbers_on_minilm_with_a_head(folder, minilm):
    from safetensors.torch import load_file
    from transformers import BertForSequenceClassification

    encoder, tokenizer = minilm
    config = copy.deepcopy(encoder.config)
    config.num_labels = 3
    model = BertForSequenceClassification(config).eval()
    model.bert.load_state_dict(encoder.state_dict(), strict=False)
    model.load_state_dict(load_file(folder / "models" / "minilm_head.safetensors"), strict=False)
    text = "The movie was surprisingly good, although the unbelievable ending felt rushed."
    theirs = np.load(folder / "lxt_minilm_attnLRP.npz")
    result = lrp(trace(model, tokenizer, text), 0)
    assert apart(result.values, theirs["relevance"]) < 1e-5
    assert apart(result.map.values[:, 0], theirs["relevance_layers"]) < 1e-5
    words = result.to("word")
    assert "unbelievable" in words.labels
    assert words.values.sum() == pytest.approx(result.values.sum(), abs=1e-5)


@pytest.mark.slow
def test_the_verb_agrees_with_the_keys_once_it_is_contrasted(smollm2):
    model, tokenizer = smollm2
    result = trace(model, tokenizer, "The keys to the cabinet on the wall")
    plain, contrast = lrp(result, " are"), lrp(result, " are", " is")
    assert plain.labels[int(plain.values.argmax())] == "␣wall"
    by_token = dict(zip(contrast.labels, contrast.values.tolist(), strict=True))
    assert by_token["␣keys"] == max(by_token.values()) == pytest.approx(1.25, abs=0.01)
    assert by_token["␣wall"] == pytest.approx(-0.31, abs=0.01)
    assert all(abs(value) < 0.14 for token, value in by_token.items() if token not in ("␣keys", "␣wall"))


# Notes about the sum


def test_cp_lrp_sums_to_the_logit_at_every_layer(tiny_llama_trace):
    result = lrp(tiny_llama_trace, 19, rule="cp_lrp")
    logit = float(tiny_llama_trace.logits[-1, 19])
    assert result.residual == pytest.approx(0, abs=1e-5)
    np.testing.assert_allclose(result.map.values.sum(-1), logit, atol=1e-4)


def test_attnlrp_says_what_is_missing(tiny_llama_trace):
    result = lrp(tiny_llama_trace, 19)
    said = result.provenance["conservation"]
    assert said["target"][0] == pytest.approx(float(tiny_llama_trace.logits[-1, 19]), abs=1e-4)
    assert said["sum"][0] == pytest.approx(result.values.sum(), abs=1e-5)
    assert result.residual == pytest.approx(said["target"][0] - said["sum"][0], abs=1e-6)
    assert abs(result.residual) > 0.5
    assert "every operation of LlamaForCausalLM has a working rule" in said["verdict"]


def test_a_reader_learns_what_takes_the_rest_and_what_the_check_shows(tiny_llama_trace):
    by_softmax = verdict_of(lrp(tiny_llama_trace, 19))
    assert (
        "not an error: under AttnLRP the softmax of attention, and biases and position embeddings"
        in by_softmax
    )
    assert "nothing else is lost: every operation of LlamaForCausalLM" in by_softmax
    relevance = lrp(tiny_llama_trace, 19)
    [line] = accounts_of(relevance)
    parts = [float(relevance.values.sum()), float(relevance.values.sum() + relevance.residual)]
    total, target = (f"{value:.2g}".replace("-", "−") for value in parts)
    assert line.startswith(f"Tokens account for {total} of {target}; biases and position embeddings (if any)")
    assert line.endswith("and the softmax keep the rest.")
    # All is with the tokens: there is nothing to explain.
    whole = lrp(tiny_llama_trace, 19, rule="cp_lrp")
    assert verdict_of(whole).startswith("every operation of")
    assert accounts_of(whole) == [f"Tokens account for all of {target}."]
    model = tiny.build(tiny.TEXT["GPT-2"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-1, 1)
    biased = lrp(trace(model, None, IDS), 7, rule="cp_lrp", at="block")
    assert "under CP-LRP biases, where a model has them, receive relevance too." in verdict_of(biased)
    assert accounts_of(biased)[0].endswith("; biases (if any) keep the rest.")


def test_the_sum_of_one_of_two_stacks_is_not_called_the_target():
    result = trace(tiny.build(tiny.SEQ2SEQ["T5"]), None, IDS)
    target = lrp(result, 7, stack="encoder").provenance["conservation"]["target"][0]
    for stack in ("encoder", "decoder"):
        (line,) = sums_of(lrp(result, 7, stack=stack))
        assert "(the other stack's tokens)" in line
        assert line.endswith(f"= {target:.4g} (target)".replace("-", "−"))
    several = lrp(result, [7, 9], stack="encoder")
    assert len(sums_of(several)) == 2
    assert "target" not in sums_of(several.select(1))[0]


def test_several_targets_are_the_same_one_by_one_and_from_one_pass():
    model = tiny.build(tiny.TEXT["GPT-2"])
    passes: list[int] = []
    handle = model.register_forward_pre_hook(lambda *_: passes.append(1))
    result = trace(model, None, IDS)
    passes.clear()
    together = lrp(result, [7, 11, 13], 5)
    handle.remove()
    assert len(passes) == 2, "a trial of the model with its hook, and a pass for all targets"
    assert together.shape == (3, 4)
    assert together.map.shape == (3, 3, 4)
    for number, target in enumerate((7, 11, 13)):
        alone = lrp(result, target, 5)
        np.testing.assert_allclose(together.values[number], alone.values, atol=1e-6)
        np.testing.assert_allclose(
            alone.values, lrp(result, target).values - lrp(result, 5).values, atol=1e-6
        )


def test_float64_is_exact():
    model = tiny.build(tiny.TEXT["Llama"]).double()
    result = lrp(trace(model, None, IDS), 7, rule="cp_lrp")
    # The norm of a Llama computes in float32, whatever the model.
    assert abs(result.residual) < 1e-8


# Every kind of input


def test_two_stacks_share_the_target():
    result = trace(tiny.build(tiny.SEQ2SEQ["T5"]), None, IDS)
    sides = [lrp(result, 7, rule="cp_lrp", stack=stack) for stack in ("encoder", "decoder")]
    assert [side.shape for side in sides] == [(4,), (1,)]
    assert sides[0].residual == pytest.approx(sides[1].residual, abs=1e-6)
    total = sum(side.values.sum() for side in sides)
    assert total == pytest.approx(sides[0].provenance["conservation"]["target"][0], rel=1e-4)
    with pytest.raises(ValueError, match="no tokens of its own"):
        lrp(result, 7, stack="cross")


def test_pictures_are_read_by_patch_or_by_pixel():
    model = tiny.build(tiny.IMAGE["ViT"])
    pixels = torch.randn(3, 24, 24, generator=torch.Generator().manual_seed(0))
    result = trace(model, None, image=pixels)
    first = lrp(result, 1)
    assert first.labels[:2] == ("[CLS]", "0,0")
    by_pixel = lrp(result, 1, at="input", unit="patch")
    assert by_pixel.values[0] == 0
    assert by_pixel.source_unit.grid == (3, 3)

    leaf = pixels[None].clone().requires_grad_()
    twin = twin_of(model)
    with implementation(twin, "eager"), single_activations(twin), Rules("attnlrp"):
        score = twin(leaf.clone()).logits[0, 1]
    relevance = (leaf * torch.autograd.grad(score, leaf)[0]).detach()[0]
    for row, column in ((0, 0), (1, 2), (2, 2)):
        patch = relevance[:, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
        assert by_pixel.values[1 + row * 3 + column] == pytest.approx(float(patch.sum()), abs=1e-6)


def test_sound_is_read_by_frame():
    sound = torch.randn(400, generator=torch.Generator().manual_seed(0))
    result = lrp(
        trace(tiny.wav2vec2(), None, audio=sound), lambda out: out.last_hidden_state[:, 0, 3], unit="frame"
    )
    assert result.source_unit.times is not None
    assert np.abs(result.values).max() > 1e-4


def test_a_transcribers_sound_is_read_by_bin_beside_the_tokens_of_its_text():
    model = tiny.whisper()
    for parameter in model.parameters():
        parameter.data *= 6  # so that the sound decides something
    result = trace(model, Bins(first=True), audio=noise(9_000))
    features, ids = (result.inputs[name] for name in ("input_features", "decoder_input_ids"))
    by_bin = lrp(result, 7, at="input", unit="bin")
    by_frame = lrp(result, 7, at="input")

    leaf = features.clone().requires_grad_()
    twin = twin_of(model)
    # Where a sound and a text are multiplied, each has its share: the tokens of the text are no constants.
    tokens = twin.model.decoder.embed_tokens(ids).detach().requires_grad_()
    with implementation(twin, "eager"), single_activations(twin), Rules("attnlrp"):
        logits = twin(input_features=leaf.clone(), decoder_inputs_embeds=tokens.clone()).logits
    relevance = (leaf * torch.autograd.grad(logits[0, -1, 7], leaf)[0]).detach()[0]
    largest = float(relevance.abs().max())
    assert largest > 1e-5
    wanted = np.sort(relevance.numpy().ravel())
    np.testing.assert_allclose(np.sort(by_bin.values), wanted, atol=1e-4 * largest)
    assert by_frame.values.sum() == pytest.approx(float(relevance.sum()), abs=1e-3 * largest)
    # The tokens of the text have the rest of the inputs' relevance, as where gradients end at the blocks.
    told = by_bin.provenance["conservation"]["sum"][0] - by_bin.values.sum()
    assert told == pytest.approx(lrp(result, 7, at="block", stack="decoder").values.sum(), rel=1e-4)


def test_a_target_may_be_any_number_of_the_outputs():
    result = trace(tiny.build(tiny.TEXT["Llama"]), None, IDS)
    logit = lrp(result, 7)
    mine = lrp(result, lambda outputs: outputs.logits[:, -1, 7])
    np.testing.assert_allclose(logit.values, mine.values, atol=1e-7)
    span = lrp(result, aw.targets.span(1, 3))
    assert np.abs(span.values).max() > 1e-4
    with pytest.raises(ValueError, match="has no head"):
        lrp(trace(tiny.build(tiny.IMAGE["DINOv2 with registers"]), None, image=torch.rand(3, 28, 28)))
    norm = lrp(trace(tiny.build(tiny.TEXT["ELECTRA"]), None, IDS), aw.targets.embedding_norm(1))
    assert np.abs(norm.values).max() > 1e-5


# The model and other threads


def test_the_model_comes_back_as_it_was():
    model = mixed_model()
    result = trace(model, None, IDS)
    before = state_of(model)
    lrp(result, 7, of="heads")
    assert state_of(model) == before
    with pytest.raises(ZeroDivisionError):
        lrp(result, lambda _: 1 / 0)
    assert state_of(model) == before


def test_numbers_of_the_forward_pass_are_the_models_own():
    model = tiny.build(tiny.TEXT["Gemma 2"])
    seen = []

    def target(outputs: Any) -> Any:
        seen.append(outputs.logits.detach())
        return outputs.logits[:, -1, 7]

    lrp(trace(model, None, IDS), target)
    expected = model(torch.tensor([IDS]), use_cache=False).logits.detach()
    assert apart(seen[-1], expected.numpy()) < 1e-5


def test_two_threads_do_not_disturb_each_other():
    models = [tiny.build(tiny.TEXT[family]) for family in ("Llama", "GPT-2")]
    traces = [trace(model, None, IDS) for model in models]
    expected = [lrp(result, 7).values for result in traces]
    plain = [model(torch.tensor([IDS]), use_cache=False).logits.detach() for model in models]
    wrong: list[int] = []

    def work(number: int) -> None:
        wrong.extend(
            number for _ in range(8) if apart(lrp(traces[number], 7).values, expected[number]) > 1e-6
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = [model(torch.tensor([IDS]), use_cache=False).logits.detach() for model in models]
    assert not wrong
    assert all(torch.equal(first, second) for first, second in zip(plain, after, strict=True))


# Trust


class Squashed(nn.Module):
    """An MLP whose exponential no rule knows."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(self.inner(x)) - 1


def test_an_architecture_that_loses_relevance_is_refused_unless_forced():
    model = tiny.build(tiny.TEXT["Llama"])
    model.model.layers[1].mlp = Squashed(model.model.layers[1].mlp)
    result = trace(model, None, IDS)
    with pytest.raises(UnsupportedModelError, match=r"no relevance rule for torch\.exp, called in Squashed"):
        lrp(result, 7)
    forced = lrp(result, 7, force=True)
    assert "not conserved" in forced.warning
    assert np.isfinite(forced.values).all()


# Bad input


def test_what_cannot_be_explained_is_refused_by_name():
    model = tiny.build(tiny.TEXT["Llama"])
    result = trace(model, None, IDS)
    with pytest.raises(ValueError, match=r"rule 'attnlpr'.*attnlrp"):
        lrp(result, 7, rule="attnlpr")
    with (
        torch.inference_mode(),
        pytest.raises(ValueError, match=r"lrp needs gradients, which torch\.inference_mode"),
    ):
        lrp(result, 7)
    with pytest.raises(ValueError, match="does not depend on the input"):
        lrp(result, lambda outputs: outputs.logits[:, -1, 7].detach())
    with pytest.raises(IndexError, match="layer 9 is out of range"):
        lrp(result, 7).map.select(layer=9)
    with pytest.raises(TypeError, match=r"no keyword 'rules'.*Did you mean 'rule'"):
        lrp(result, 7, rules="attnlrp")
    with pytest.raises(ValueError, match="which position"):
        lrp(trace(tiny.build(tiny.TEXT["BERT"]), None, IDS), 7)


def test_weights_that_are_quantised_are_refused_by_name():
    model = tiny.build(tiny.TEXT["Llama"])
    result = trace(model, None, IDS)
    quantised = type("QuantLinear", (nn.Linear,), {})
    model.model.layers[0].mlp.up_proj.__class__ = quantised
    with pytest.raises(
        ValueError, match=r"quantised weights such as those of model\.layers\.0\.mlp\.up_proj"
    ):
        lrp(result, 7)


def test_what_is_no_trace_is_told_what_to_do():
    with pytest.raises(TypeError, match=r"aw\.trace_module\(module, x\)"):
        lrp(nn.Linear(2, 2), 0)
    given = aw.from_attentions(torch.ones(1, 1, 1, 1), ["a"])
    with pytest.raises(ValueError, match="without a model"):
        lrp(given)
    with pytest.raises(UnsupportedModelError, match="this trace has no model"):
        lrp(given, lambda outputs: outputs.logits)
    sound = torch.randn(400, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r'reads pictures.*at="block"'):
        lrp(trace(tiny.wav2vec2(), None, audio=sound), lambda out: out.last_hidden_state[:, 0, 3], at="input")
    with pytest.raises(ValueError, match="needs recorded attention"):
        lrp(trace(tiny.build(tiny.UNFOLLOWED["GPT-Neo with sums"]), None, IDS), 7, of="heads")


def test_biases_that_are_ignored_leave_cp_lrp_nothing_to_miss():
    model = tiny.build(tiny.TEXT["GPT-2"]).double()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    result = trace(model, None, IDS)
    absorbed, ignored = (lrp(result, 7, rule="cp_lrp", bias=bias) for bias in ("absorb", "ignore"))
    assert abs(absorbed.residual) > 0.05
    assert abs(ignored.residual) < 1e-9
    assert np.isfinite(lrp(result, 7, bias="ignore").values).all()


def test_what_explodes_without_biases_is_said(minilm):
    result = lrp(trace(*minilm, "two words"), aw.targets.embedding_norm(0), bias="ignore")
    assert abs(result.residual) > 10
    assert "nearly cancel receive far too much" in result.warning
    assert not lrp(trace(*minilm, "two words"), aw.targets.embedding_norm(0)).warning


def test_tokens_along_another_axis_are_refused_in_words():
    config = hf.XLNetConfig(vocab_size=50, d_model=16, n_layer=2, n_head=2, d_inner=16)
    xlnet = trace(tiny.build(lambda: hf.XLNetModel(config)), None, IDS)
    with pytest.raises(UnsupportedModelError, match=r"receive 1 vectors for 4 tokens; \[token, batch"):
        lrp(xlnet, lambda out: out.last_hidden_state[:, 0, 0])
    for method in (aw.saliency, aw.input_x_gradient, aw.integrated_gradients):
        with pytest.raises(UnsupportedModelError, match=r"reads \[token, batch, width\]"):
            method(xlnet, lambda out: out.last_hidden_state[:, 0, 0])


def test_nan_is_named_by_its_layer():
    model = tiny.build(tiny.TEXT["Llama"])
    result = trace(model, None, IDS)
    lrp(result, 7)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="after layer 1 hold NaN"):
        lrp(result, 7)


def test_half_precision_is_computed_in_float32():
    model = tiny.build(tiny.TEXT["Llama"]).bfloat16()
    exact = copy.deepcopy(model).float()
    result = lrp(trace(model, None, IDS), 7)
    expected = lrp(trace(exact, None, IDS), 7)
    np.testing.assert_allclose(result.values, expected.values, atol=1e-6)
    assert np.isfinite(lrp(trace(model, None, IDS), 7, precision="model").values).all()


def test_the_former_keyword_layers_warns_and_selects_layers_of_the_map() -> None:
    result = trace(tiny.build(tiny.TEXT["Llama"]), None, IDS)
    now = lrp(result, 7).map.select(layer=[0, 2])
    with pytest.warns(
        DeprecationWarning, match=r"lrp: layers=... is \.map\.select\(layer=...\) of the result"
    ):
        former = lrp(result, 7, layers=[0, 2])
    assert former.map.layers == now.layers == (0, 2)
    np.testing.assert_array_equal(former.map.layer(2), now.layer(2))
    with pytest.warns(DeprecationWarning, match="lrp: layers"):
        both = lrp([result, result], 7, layers=1)
    assert [each.map.layers for each in both] == [(1,), (1,)]
