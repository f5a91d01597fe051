"""Models that mix tokens by a recurrence: their answers, weights and contributions are the closed forms."""

from __future__ import annotations

import copy
import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from transformers.models.mamba2 import modeling_mamba2
from transformers.models.qwen3_next import modeling_qwen3_next

import attnwidgets as aw
from tests.zoo.made import RECURRENT, logits_of, made, traced

# Beside the default, settings in which earlier letters remain.
FADING = [{"beta": 0.5, "decay": 0.9}, {"beta": 0.8, "decay": 0.97}, {"decay": 0.6}, {"beta": 0.3}]
DECAYS = [0.5, 0.9, 0.99, 1.0]
KERNELS = {
    # module, its kernel, the argument that holds the values [1, token, head, channel]
    "last_marked": (modeling_qwen3_next, "torch_chunk_gated_delta_rule", 2),
    "decayed_counts": (modeling_mamba2, "mamba2_chunk_scan", 0),
}


def texts_of(model, count=50, seed=0):
    """Random texts of the full length; a marker is drawn four times as often as a letter."""
    letters = model.truth.letters
    if model.truth.name == "last_marked":
        letters += 3 * letters[-1]
    draw = random.Random(seed)
    return ["".join(draw.choices(letters, k=model.truth.length)) for _ in range(count)]


def parts_of(model, name):
    """The mixer, its first projection, and the rows of it that are the values."""
    if name == "last_marked":
        mixer = model.model.layers[0].linear_attn
        return mixer, mixer.in_proj_qkvz, slice(2 * mixer.head_k_dim, 2 * mixer.head_k_dim + mixer.head_v_dim)
    mixer = model.backbone.layers[0].mixer
    return mixer, mixer.in_proj, slice(mixer.intermediate_size, 2 * mixer.intermediate_size)


@contextmanager
def watching(monkeypatch, name, rows):
    """Append to `rows` the outputs of the model's kernel for unit vectors, and for its values."""
    module, kernel, values = KERNELS[name]
    original = getattr(module, kernel)

    def watched(*arguments, **options):
        output = original(*arguments, **options)
        count = arguments[values].shape[1]
        given = list(arguments)
        given[values] = torch.eye(count)[None, :, None]
        first = output[0] if isinstance(output, tuple) else output
        answer = original(*given, **options)
        weights = answer[0] if isinstance(answer, tuple) else answer
        rows.append((weights[0, :, 0].double().numpy(), first[0, :, 0].double().numpy()))
        return output

    with monkeypatch.context() as patched:
        patched.setattr(module, kernel, watched)
        yield


def test_every_token_answers_with_the_letter_before_the_last_marker():
    model, tokenizer = made("last_marked")
    asked = 0
    for text in texts_of(model):
        best = logits_of(model, tokenizer, [text])[0].argmax(-1)
        expected, latest = [None], None
        for before, letter in zip(f"#{text}", text, strict=False):
            if letter == "#":
                latest = None if before == "#" else before
            expected.append(latest)
        assert [model.truth.answer(text, at) for at in range(len(text) + 1)] == expected
        right = [tokenizer.convert_ids_to_tokens(int(best[i])) == e for i, e in enumerate(expected) if e]
        assert all(right), text
        asked += len(right)
    assert asked > 500


@pytest.mark.parametrize("settings", FADING)
def test_the_answer_has_the_largest_sum_where_earlier_letters_remain(settings):
    model, tokenizer = made("last_marked", **settings)
    asked = 0
    for text in texts_of(model):
        best = logits_of(model, tokenizer, [text])[0].argmax(-1)
        answers = [model.truth.answer(text, at) for at in range(len(text) + 1)]
        given = [(answer, int(token)) for answer, token in zip(answers, best, strict=True) if answer]
        assert [tokenizer.convert_ids_to_tokens(token) for _, token in given] == [a for a, _ in given]
        asked += len(given)
    assert asked > 500


@pytest.mark.parametrize("settings", [{}, *FADING])
def test_logits_are_the_stored_letters_at_length_ten(settings):
    model, tokenizer = made("last_marked", **settings)
    for text in texts_of(model, 10):
        logits = logits_of(model, tokenizer, [text])[0].numpy()
        alpha = model.truth.mixing(text).alpha[0]
        stored = np.zeros((len(text) + 1, len(model.truth.letters) + 1))
        for i in range(2, len(text) + 1):
            if text[i - 1] == "#" != text[i - 2]:
                stored[:, model.truth.letters.index(text[i - 2])] += alpha[:, i]
        length = np.linalg.norm(stored, axis=1, keepdims=True)
        # An almost erased value is a difference of numbers near 1, with a rounding of 1e-7.
        clear = length[:, 0] > 0.05
        np.testing.assert_allclose(logits[clear], (10 * stored / np.maximum(length, 1e-9))[clear], atol=5e-5)
        # Of letters that fade a rounding remains where a marker left nothing, and the norm enlarges it.
        if not settings:
            assert not logits[length[:, 0] == 0].any()


@pytest.mark.parametrize("decay", DECAYS)
def test_logits_are_the_decayed_counts(decay):
    model, tokenizer = made("decayed_counts", decay=decay)
    asked = 0
    for text in texts_of(model):
        logits = logits_of(model, tokenizer, [text])[0]
        counts = np.zeros(9)
        for i, letter in enumerate(["<s>", *text]):
            counts *= decay
            counts["abcdefgh".find(letter)] += letter != "<s>"
            np.testing.assert_allclose(logits[i], counts, rtol=1e-6, atol=1e-6)
            answer = model.truth.answer(text, i)
            assert answer is None or int(logits[i].argmax()) == "abcdefgh".index(answer)
            asked += answer is not None
    assert asked > 500


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(("last_marked", settings) for settings in [{}, *FADING]),
        *(("decayed_counts", {"decay": decay}) for decay in DECAYS),
    ],
)
def test_alpha_is_what_the_kernel_makes_of_unit_vectors(name, settings, monkeypatch):
    model, tokenizer = made(name, **settings)
    for text in ["", *texts_of(model, 10)]:
        rows = []
        with watching(monkeypatch, name, rows):
            logits_of(model, tokenizer, [text])
        ((weights, _),) = rows
        np.testing.assert_allclose(weights, model.truth.mixing(text).alpha[0], atol=1e-6)


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("decay", [0.9, 1.0])
def test_shares_are_what_single_tokens_contribute(name, decay, monkeypatch):
    """All else as it is, the values of a single token go through convolution and kernel."""
    model, tokenizer = made(name, decay=decay)
    _, projection, values = parts_of(model, name)
    for text in texts_of(model, 2):
        lengths = np.zeros((len(text) + 1, len(text) + 1))
        for token in range(len(text) + 1):

            def alone(_, __, output, token=token):
                output = output.clone()
                output[:, np.arange(output.shape[1]) != token, values] = 0
                return output

            rows = []
            handle = projection.register_forward_hook(alone)
            try:
                with watching(monkeypatch, name, rows):
                    logits_of(model, tokenizer, [text])
            finally:
                handle.remove()
            # Later steps (norm, gate, projection) multiply all channels of a row by the same number.
            lengths[:, token] = np.linalg.norm(rows[0][1], axis=1)
        shares = lengths / np.maximum(lengths.sum(1, keepdims=True), 1e-12)
        truth = model.truth.mixing(text).shares
        full = lengths.sum(1) > 1e-5  # less is the rounding of an erased letter
        np.testing.assert_allclose(shares[full], truth[full], atol=1e-6)
        assert not truth[~full].any()
        np.testing.assert_allclose(truth[full].sum(1), 1, atol=1e-12)


def test_alpha_names_the_marker_and_the_contribution_the_letter():
    model, _ = made("last_marked")
    mixing = model.truth.mixing("cf#bd#aheg")
    row = np.zeros(11)
    row[6] = 0.5
    np.testing.assert_array_equal(mixing.alpha[0, -1], row)
    row[[5, 6]] = 1, 0
    np.testing.assert_array_equal(mixing.shares[-1], row)
    assert set(model.truth.evidence("cf#bd#aheg")) == {5, 6}
    assert set(model.truth.evidence("cf#bd#aheg", at=5)) == {2, 3}
    assert model.truth.answer("cf##") is None
    assert model.truth.evidence("#") == {}
    assert not model.truth.mixing("cf##").shares[-1].any()


def test_a_model_that_attends_has_no_such_mixing():
    with pytest.raises(ValueError, match=r"induction mixes tokens by attention, which aw\.attention"):
        made("induction")[0].truth.mixing("abca")
    with pytest.raises(ValueError, match="text holds 'z'"):
        made("last_marked")[0].truth.mixing("az")


@pytest.mark.parametrize("name", RECURRENT)
def test_without_its_only_head_nothing_is_known(name):
    model, tokenizer, trace = traced(name)
    norm = parts_of(model, name)[0].norm
    handle = norm.register_forward_pre_hook(lambda _, given: (torch.zeros_like(given[0]), *given[1:]))
    try:
        logits = logits_of(model, tokenizer, [RECURRENT[name][1]])[0, -1]
    finally:
        handle.remove()
    ablation = model.truth.ablations[0, 0]
    assert logits.softmax(-1).tolist() == pytest.approx([ablation.probability] * len(logits), abs=1e-6)
    assert float(trace.logits[-1].max()) > 1


@pytest.mark.parametrize("name", RECURRENT)
def test_they_are_traced_without_attention(name):
    model, _, trace = traced(name)
    assert trace.no_attention.startswith(f"{type(model).__name__} mixes tokens by ")
    assert trace.predictions(1)[0].label == model.truth.answer(trace.tokens)
    (block,) = trace.anatomy.stacks["self"]
    assert [mixer.kind for mixer in block.mixers] == [
        "gated delta rule" if name == "last_marked" else "state space"
    ]


def said(method, name, **options):
    return aw.explain(traced(name)[2], method, **options).values


def test_gradients_see_nothing_where_the_norm_is_saturated_and_removal_sees_both():
    for method in ("input_x_gradient", "saliency"):
        # Of the logit of 10. The rest is the last norm: the embedding of the last token is in its length.
        assert np.abs(said(method, "last_marked")).max() < 0.1, method
    removed = said("occlusion", "last_marked")
    # Without the marker, f is the answer. A mean embedding instead of d holds all eight letters alike.
    expected = np.zeros(11)
    expected[[5, 6]] = 10 - 10 / 8**0.5, 10
    np.testing.assert_allclose(removed[:-1], expected[:-1], atol=1e-4)
    assert abs(removed[-1]) < 0.1


def test_another_letter_in_place_of_any_token_tells_letter_and_marker():
    model, tokenizer, trace = traced("last_marked")
    text = "cf#bd#aheg"
    changed = [text[:i] + ("b" if text[i] != "b" else "a") + text[i + 1 :] for i in range(len(text))]
    d = model.truth.letters.index("d")
    lost = 10 - logits_of(model, tokenizer, changed)[:, -1, d]
    assert float(trace.logits[-1, d]) == pytest.approx(10, abs=1e-5)
    assert np.flatnonzero(lost > 1e-4).tolist() == [4, 5]
    assert lost[[4, 5]].tolist() == pytest.approx([10, 10], abs=1e-4)


def test_whatever_shares_out_a_decayed_count_returns_it():
    _, _, trace = traced("decayed_counts")
    amounts = np.array([0.9 ** (8 - i) for i in range(9)])
    is_a = np.array([token == "a" for token in trace.tokens])
    np.testing.assert_allclose(said("input_x_gradient", "decayed_counts"), amounts * is_a, atol=1e-5)
    # Against the mean embedding, in which each letter is a ninth and the silu a little less than linear.
    mean = 32 / 9
    ninth = mean / (1 + np.exp(-mean)) / 32
    for method in ("occlusion", "deeplift", "integrated_gradients", "shapley_sampling"):
        values = said(method, "decayed_counts")
        # 50 points of the path of integrated gradients leave the curve of the silu to 1e-3.
        tolerance = 2e-3 if method == "integrated_gradients" else 1e-4
        np.testing.assert_allclose(values, amounts * (is_a - ninth), atol=tolerance, err_msg=method)


@pytest.mark.parametrize("name", RECURRENT)
def test_they_generate_and_keep_their_truth_in_a_copy(name):
    model, tokenizer = made(name)
    text = RECURRENT[name][1]
    inputs = tokenizer(text, return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert tokenizer.decode(out[0], skip_special_tokens=True) == text + 3 * model.truth.answer(text)
    other = copy.deepcopy(model)
    assert other.truth == model.truth
    np.testing.assert_array_equal(other.truth.mixing(text).alpha, model.truth.mixing(text).alpha)


def test_arguments_that_cannot_be_are_named():
    for settings, why in (
        ({"marker": "a"}, "marker must be a character that is not one of the letters, not 'a'"),
        ({"marker": "##"}, "marker must be a character"),
        ({"beta": 0}, r"beta must be 0\.1 to 1, not 0"),
        ({"decay": 1.5}, r"decay must be 0\.5 to 1, not 1\.5"),
        ({"length": 65}, "length must be 1 to 64"),
        ({"letters": ""}, "letters must have 1 to 64 characters"),
    ):
        with pytest.raises(ValueError, match=why):
            aw.zoo.last_marked(**settings)
    with pytest.raises(ValueError, match=r"decay must be 0\.5 to 1, not 0\.1"):
        aw.zoo.decayed_counts(decay=0.1)
    with pytest.raises(TypeError, match=r"decay must be a number from 0\.5 to 1, not '0\.9'"):
        aw.zoo.decayed_counts(decay="0.9")


@pytest.mark.parametrize("name", RECURRENT)
def test_one_letter_and_one_token_will_do(name):
    model, tokenizer = getattr(aw.zoo, name)("a", 3)
    text = "a#a"[: 3 if name == "last_marked" else 1]
    assert tokenizer.decode(logits_of(model, tokenizer, [text])[0, -1].argmax()) == "a"
    assert torch.isfinite(logits_of(model, tokenizer, [""])).all()
