"""States of many texts: to a plain pass of the model, wherever they are read, and the model as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny

TEXTS = ["The soup was good.", "A dull, overlong film without a single joke.", "The bread came fresh."]


@pytest.fixture(scope="module")
def classifier():
    return aw.demo_model("classifier")


@pytest.fixture(scope="module")
def plain(classifier):
    """Hidden states [text, token, dim] by layer, their gradients and the lengths, text by text."""
    model, tokenizer = classifier
    rows = []
    for text in TEXTS:
        outputs = model.eval()(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        slopes = torch.autograd.grad(outputs.logits[0, 0], outputs.hidden_states)
        of_layers = [
            np.stack([each[0].detach().numpy() for each in part]) for part in (outputs.hidden_states, slopes)
        ]
        rows.append((*of_layers, outputs.logits[0, 0].item()))
    return rows


@pytest.mark.parametrize(
    ("at", "tokens"),
    [("cls", 0), ("last", -1), ("mean", slice(None)), (2, 2), (["soup", "overlong", "came"], None)],
)
def test_states_and_gradients_are_those_of_a_plain_pass(classifier, plain, at, tokens) -> None:
    model, tokenizer = classifier
    result = aw.concepts.states(model, tokenizer, TEXTS, at=at, target="negative")
    assert result.shape == (3, 7, 384)
    for row, (hidden, slopes, score) in enumerate(plain):
        where = tokens
        if where is None:
            pieces = tokenizer.convert_ids_to_tokens(tokenizer(TEXTS[row])["input_ids"])
            where = [pieces.index("soup")] if row == 0 else [4, 5] if row == 1 else [pieces.index("came")]
            if row == 1:
                assert "".join(pieces[4:6]).replace("##", "") == "overlong"
        picked, moved = hidden[:, where], slopes[:, where]
        if picked.ndim == 3:
            picked, moved = picked.mean(1), moved.sum(1)
        np.testing.assert_allclose(result.values[row], picked, atol=2e-5)
        np.testing.assert_allclose(result.gradients[row], moved, atol=2e-6)
        assert result.scores[row] == pytest.approx(score, abs=1e-5)


def test_every_token_is_a_row_of_its_own(classifier, plain) -> None:
    result = aw.concepts.states(*classifier, TEXTS, at="tokens", target="negative")
    hidden, slopes, score = plain[1]
    rows = [row for row, text in enumerate(result.texts) if text == TEXTS[1]]
    np.testing.assert_allclose(result.values[rows], hidden[:, 1:-1].swapaxes(0, 1), atol=2e-5)
    np.testing.assert_allclose(result.gradients[rows], slopes[:, 1:-1].swapaxes(0, 1), atol=2e-6)
    np.testing.assert_allclose(result.scores[rows], score, atol=1e-5)
    assert result.positions[rows].tolist() == list(range(1, len(rows) + 1))


def test_the_model_comes_back_as_it_was(classifier) -> None:
    model, tokenizer = classifier
    model.train()
    hooks = [(dict(each._forward_hooks), dict(each._forward_pre_hooks)) for each in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    aw.concepts.states(model, tokenizer, TEXTS, target="positive")
    assert model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert hooks == [(dict(each._forward_hooks), dict(each._forward_pre_hooks)) for each in model.modules()]
    model.eval()


@pytest.mark.slow
def test_what_does_not_fit_into_memory_is_kept_in_a_file(classifier) -> None:
    model, tokenizer = classifier
    whole = aw.concepts.states(model, tokenizer, TEXTS, target="negative")
    filed = aw.concepts.states(
        model, tokenizer, TEXTS, target="negative", batches=aw.concepts.Batches(memory=1000)
    )
    folder = filed._folder.name
    assert filed.on_disk
    assert not whole.on_disk
    assert np.array_equal(whole.values, filed.values)
    assert np.array_equal(whole.gradients, filed.gradients)
    assert "temporary file" in repr(filed)
    del filed
    import gc
    from pathlib import Path

    gc.collect()
    assert not Path(folder).exists()


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_a_token_is_the_target_of_each_text_in_its_own_row(name) -> None:
    torch.manual_seed(0)
    model = tiny.build(tiny.TEXT[name]).double().eval()
    traces = [aw.trace(model, None, input_ids=ids) for ids in ([3, 17, 42, 8], [5, 9])]
    result = aw.concepts.states(traces, layers=[1], at="last", target=aw.targets.token(7))
    for row, trace in enumerate(traces):
        outputs = model(**trace.inputs, output_hidden_states=True)
        (slope,) = torch.autograd.grad(outputs.logits[0, -1, 7], [outputs.hidden_states[1]])
        np.testing.assert_allclose(result.values[row, 0], outputs.hidden_states[1][0, -1].detach(), atol=1e-6)
        np.testing.assert_allclose(result.gradients[row, 0], slope[0, -1], atol=1e-6)


def test_pictures_are_read_as_traces() -> None:
    torch.manual_seed(1)
    model = tiny.build(tiny.IMAGE["ViT"])
    traces = [aw.trace(model, None, image=torch.rand(3, 24, 24)) for _ in range(2)]
    result = aw.concepts.states(traces, at="mean", layers=-1)
    hidden = model.eval()(**traces[1].inputs, output_hidden_states=True).hidden_states[-1]
    np.testing.assert_allclose(result.values[1, 0], hidden[0].mean(0).detach(), atol=1e-5)


def test_sounds_are_read_as_traces_of_either_stack() -> None:
    torch.manual_seed(1)
    model = tiny.wav2vec2()
    traces = [aw.trace(model, None, audio=torch.randn(120 + 40 * more)) for more in range(2)]
    result = aw.concepts.states(traces, at="mean", layers=-1)
    for row, trace in enumerate(traces):
        hidden = model(**trace.inputs, output_hidden_states=True).hidden_states[-1]
        np.testing.assert_allclose(result.values[row, 0], hidden[0].mean(0).detach(), atol=1e-5)
    whisper = tiny.whisper()
    heard = [aw.trace(whisper, None, audio=torch.randn(1, 8, 40), max_new_tokens=3) for _ in range(2)]
    encoded = aw.concepts.states(heard, at="mean", layers=1, stack="encoder")
    encoder = whisper.model.encoder(heard[1].inputs["input_features"], output_hidden_states=True)
    np.testing.assert_allclose(encoded.values[1, 0], encoder.hidden_states[1][0].mean(0).detach(), atol=1e-5)
    written = aw.concepts.states(heard, at="last", layers=0, stack="decoder")
    assert written.lengths.tolist() == [len(each.axes("decoder")[0]) for each in heard]
    assert (written.positions == written.lengths - 1).all()


def test_a_table_names_the_texts_and_a_selection_keeps_them(classifier) -> None:
    result = aw.concepts.states(*classifier, TEXTS, layers=[0, 3], target="negative")
    rows = result.to_rows()
    assert len(rows) == 6
    assert rows[3]["text"] == TEXTS[1]
    assert rows[3]["layer"] == 3
    assert rows[3]["norm"] == pytest.approx(np.linalg.norm(result.layer(3)[1]))
    some = result.select([2, 0], layers=3)
    assert some.texts == (TEXTS[2], TEXTS[0])
    assert np.array_equal(some.values[:, 0], result.layer(3)[[2, 0]])


@pytest.mark.parametrize("normalised", ["none", "layer_norm"])
def test_features_of_an_autoencoder_are_states_with_gradients_along_their_directions(
    classifier, normalised
) -> None:
    torch.manual_seed(0)
    weights = torch.randn(384, 32), torch.randn(32, 384), torch.randn(384) / 9, torch.zeros(32)
    sae = aw.SAE(*weights, normalize_activations=normalised)
    result = aw.concepts.states(*classifier, TEXTS, layers=[2, 3], at="cls", target="negative")
    active = result.features(sae, layer=3)
    h = torch.tensor(result.layer(3))
    assert (active.shape, active.layers, active.texts) == ((3, 1, 32), (3,), result.texts)
    np.testing.assert_allclose(active.values[:, 0], sae.encode(h).detach(), atol=1e-5)
    # A feature turned up by a little moves the state along its direction, and the target by the gradient.
    ((before,), (after,)) = (sae.decode(sae.encode(h)[[1]] + step, h[[1]]) for step in (0, torch.eye(32)[5]))
    along = result.gradient(3)[1] @ (after - before).detach().numpy()
    assert active.gradients[1, 0, 5] == pytest.approx(along, rel=1e-4, abs=1e-5)
    assert "mean state" in repr(aw.concepts.states(*classifier, TEXTS, layers=3).features(sae))
    with pytest.raises(ValueError, match="layers 2, 3: choose the one that the SAE reads"):
        result.features(sae)
    with pytest.raises(ValueError, match="384 wide, but the SAE reads states of width 8"):
        result.features(aw.SAE(torch.ones(8, 2), torch.ones(2, 8), torch.zeros(8), torch.zeros(2)), layer=2)
    labels = ["no", "yes", "no"] * 8
    many = aw.concepts.states(*classifier, TEXTS * 8, layers=3).features(sae)
    assert aw.evaluate.probe(many, labels, resamples=5).metrics[0] == "accuracy"


@pytest.mark.parametrize(
    ("texts", "options", "error", "said"),
    [
        ([], {}, ValueError, "texts is empty"),
        (["fine", "  "], {}, ValueError, r"texts\[1\].*empty"),
        (["word " * 600], {}, ValueError, "too long"),
        (TEXTS, {"at": "lats"}, ValueError, "Did you mean 'last'"),
        (TEXTS, {"at": ["soup", "film"]}, ValueError, "2 entries, and there are 3 texts"),
        (TEXTS, {"at": ["soup", "bread", "came"]}, ValueError, r"at\[1\] is 'bread', which is not in"),
        (TEXTS, {"at": 40}, IndexError, r"texts\[0\].*token 40"),
        (TEXTS, {"at": "mask"}, ValueError, "holds no mask token"),
        (TEXTS, {"layers": 9}, IndexError, "layers 0 to 6"),
        (TEXTS, {"target": "negativ"}, ValueError, "Did you mean 'negative'"),
        (["  ", "fine"], {}, ValueError, r"texts\[0\].*empty"),
        ([3], {}, TypeError, "a int"),
        (["fine", None], {}, TypeError, "holds a NoneType at 1"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(classifier, texts, options, error, said) -> None:
    with pytest.raises(error, match=said):
        aw.concepts.states(*classifier, texts, **options)


def test_the_first_token_of_a_causal_model_is_said_to_see_nothing() -> None:
    model = tiny.build(tiny.TEXT["GPT-2"])
    trace = aw.trace(model, None, input_ids=[3, 4, 5])
    assert "sees nothing" in repr(aw.concepts.states([trace], at="cls"))
    assert "sees nothing" not in repr(aw.concepts.states([trace], at="last"))


def test_former_keywords_of_batches_warn_and_give_the_same(classifier) -> None:
    now = aw.concepts.states(*classifier, TEXTS, batches=aw.concepts.Batches(batch_size=1, memory=1000))
    with pytest.warns(DeprecationWarning, match=r"'batch_size', 'memory' belong in batches=aw\.concepts"):
        former = aw.concepts.states(*classifier, TEXTS, batch_size=1, memory=1000)
    np.testing.assert_array_equal(former.values, now.values)
    assert former.notes == now.notes
    with pytest.raises(TypeError, match=r"batches takes an aw\.concepts\.Batches, not 3"):
        aw.concepts.states(*classifier, TEXTS, batches=3)
