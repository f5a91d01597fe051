"""aw.trace: every kind of input, predictions, and refusals."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest
import torch

from attnwidgets._errors import suggest
from attnwidgets.explanations.attribution.gradients import saliency
from attnwidgets.tracing.free_memory import byte_budget
from attnwidgets.tracing.recording.inputs import limit_of, position_table
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

TEMPLATE = (
    "{% for m in messages %}<|end|>{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}bot:{% endif %}"
)


@pytest.fixture(scope="module")
def bert() -> Any:
    return tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()


@pytest.fixture(scope="module")
def gpt() -> Any:
    import transformers as hf

    config = hf.GPT2Config(
        vocab_size=262, n_embd=32, n_layer=2, n_head=4, n_positions=40, bos_token_id=0, eos_token_id=0
    )
    return tiny.build(lambda: hf.GPT2LMHeadModel(config)), tiny.byte_level()


def test_a_trace_says_what_it_holds(bert: Any, gpt: Any) -> None:
    assert repr(trace(*bert, "the cat sat")) == (
        "<Trace [layer 2, head 4] of 5 tokens; BertForMaskedLM; 'the cat sat'>"
    )
    long = trace(*gpt, "a" * 60, max_new_tokens=0, truncation=True)
    assert "of 40 tokens" in repr(long)
    assert "cut" in repr(long)
    both = trace(tiny.build(tiny.SEQ2SEQ["T5"]), tiny.wordpiece(), "the cat", target_text="a b")
    assert "encoder [layer 2, head 4], decoder [layer 2, head 4], cross [layer 2, head 4]" in repr(both)


def test_names_and_folders(bert: Any, tmp_path: Any) -> None:
    model, tokenizer = bert
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    expected = trace(model, tokenizer, "the cat sat")
    for given in (str(tmp_path), tmp_path):
        result = trace(given, None, "the cat sat")
        assert type(result.model) is type(model), "the class it was saved with"
        assert torch.equal(result.attention_layer(1), expected.attention_layer(1))
    with pytest.raises(ValueError, match="'no/such-model' is not a folder"):
        trace("no/such-model", None, "text")


def test_pair(bert: Any) -> None:
    result = trace(*bert, "the cat", text_pair="a b")
    assert result.axes()[0].segment == (0, 0, 0, 0, 1, 1, 1)
    assert result.input_ids is not None
    assert result.input_ids.shape == (7,)


def test_list_gives_a_list(bert: Any) -> None:
    texts = ["the cat sat .", "a", "unbelievable cat"] * 4
    result = trace(*bert, texts)
    assert len(result) == 12
    for text, item in zip(texts, result, strict=True):
        alone = trace(*bert, text)
        assert item.tokens == alone.tokens
        assert item.units["word"] == alone.units["word"]
        torch.testing.assert_close(item.attention_layer(1), alone.attention_layer(1), atol=1e-6, rtol=0)
    assert isinstance(trace(*bert, ["a"]), list)
    assert len({item.id for item in result}) == 12


def test_ids_in_every_form(bert: Any) -> None:
    model, tokenizer = bert
    encoded = tokenizer("the cat", return_tensors="pt")
    ids = encoded["input_ids"]
    expected = trace(model, tokenizer, "the cat").tokens
    for given in (ids, ids[0], ids.numpy(), ids[0].tolist(), encoded):
        assert trace(model, tokenizer, given).tokens == expected
    assert trace(model, None, ids).tokens == tuple(str(int(i)) for i in ids[0])
    assert trace(model, None, input_ids=ids[0]).n_layers() == 2


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_encoding_loses_its_padding(bert: Any, side: str) -> None:
    model, tokenizer = bert
    encoded = tokenizer(["the cat sat .", "a"], padding=True, padding_side=side, return_tensors="pt")
    result = trace(model, tokenizer, encoded)
    assert [item.tokens for item in result] == [
        ("[CLS]", "the", "cat", "sat", ".", "[SEP]"),
        ("[CLS]", "a", "[SEP]"),
    ]
    assert result[1].attention_layer(0).shape == (4, 3, 3)


def test_generation_then_one_pass(gpt: Any) -> None:
    model, tokenizer = gpt
    result = trace(model, tokenizer, "the cat", max_new_tokens=3)
    prompt = len(tokenizer("the cat")["input_ids"])
    assert result.boundary == prompt
    assert len(result.tokens) == prompt + 3
    ids = torch.as_tensor(result.input_ids)[None]
    with torch.no_grad():
        logits = model(ids).logits
    # Each generated token is also the choice of the pass over everything.
    assert logits[0, prompt - 1 : -1].argmax(-1).tolist() == ids[0, prompt:].tolist()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        whole = model(ids, output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    assert torch.equal(result.attention_layer(1), whole[1][0])
    with pytest.raises(ValueError, match="a model that generates"):
        trace(tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece(), "the cat", max_new_tokens=2)


def test_chat_messages(gpt: Any) -> None:
    model, tokenizer = gpt
    with pytest.raises(ValueError, match="chat template"):
        trace(model, tokenizer, messages=[{"role": "user", "content": "hi"}])
    tokenizer = tiny.byte_level()
    tokenizer.chat_template = TEMPLATE
    result = trace(model, tokenizer, messages=[{"role": "user", "content": "the cat"}])
    assert result.text == "<|end|>user: the cat\nbot:"
    assert result.tokens[0] == "<|end|>"
    assert result.units["token"].special[0]
    words = result.units["word"]
    inside = [label for label, apart in zip(words.labels, words.special, strict=True) if not apart]
    assert inside == ["the", "cat"]
    with pytest.raises(ValueError, match="messages must be a list like"):
        trace(model, tokenizer, messages=["hello"])


def test_next_token_predictions(gpt: Any) -> None:
    model, tokenizer = gpt
    result = trace(model, tokenizer, "the cat")
    best = result.predictions(3)
    with torch.no_grad():
        expected = model(torch.as_tensor(result.input_ids)[None]).logits[0, -1].softmax(-1)
    assert result.predictions_title == "next token"
    assert [p.id for p in best] == expected.topk(3).indices.tolist()
    assert best[0].probability == pytest.approx(float(expected.max()), abs=1e-6)
    assert result.logits is not None
    assert result.logits.shape == (len(result.tokens), 262)
    with pytest.raises(ValueError, match="k must be at least 1"):
        result.predictions(0)


def test_mask_and_class_predictions(bert: Any) -> None:
    import transformers as hf

    result = trace(*bert, "the [MASK] sat")
    assert result.predictions_title == "[MASK] at 2"
    assert not result.units["token"].special[2], "a mask stands for a word"
    assert trace(*bert, "the cat").predictions() == ()
    config = hf.BertConfig(vocab_size=tiny.VOCAB, **tiny.SMALL, num_labels=2, id2label={0: "bad", 1: "good"})
    classifier = tiny.build(lambda: hf.BertForSequenceClassification(config))
    result = trace(classifier, bert[1], "the cat")
    assert result.predictions_title == "class"
    assert {p.label for p in result.predictions()} == {"good", "bad"}
    assert sum(p.probability for p in result.predictions()) == pytest.approx(1)


def test_what_a_decoder_reads_may_be_given() -> None:
    model, tokenizer = tiny.build(tiny.SEQ2SEQ["T5"]), tiny.wordpiece()
    result = trace(model, tokenizer, "the cat", target_text="a b")
    query, key = result.axes("cross")
    assert query.tokens[1:] == ("[CLS]", "a", "b", "[SEP]")
    assert key.tokens == ("[CLS]", "the", "cat", "[SEP]")
    assert result.predictions_title == "next token"
    assert len(trace(model, tokenizer, "the cat").axes("decoder")[0]) == 1
    with pytest.raises(ValueError, match="encoder-decoder"):
        trace(tiny.build(tiny.TEXT["BERT"]), tokenizer, "the cat", target_text="a")


def test_processors() -> None:
    import transformers as hf

    model = tiny.build(tiny.IMAGE["ViT"])
    processor = hf.ViTImageProcessor(size={"height": 24, "width": 24})
    picture = np.random.default_rng(0).integers(0, 255, (50, 40, 3), dtype=np.uint8)
    result = trace(model, processor, image=picture)
    assert result.units["patch"].grid == (3, 3)
    assert result.predictions_title == "class"
    reader = hf.Wav2Vec2FeatureExtractor()
    result = trace(tiny.wav2vec2(), reader, audio=np.zeros(320, dtype=np.float32), sampling_rate=16_000)
    assert result.units["frame"].times is not None
    with pytest.raises(ValueError, match="reads images only"):
        trace(model, processor, "text", image=picture)
    for given in ({"image": picture}, {"audio": np.zeros(320, dtype=np.float32)}):
        with pytest.raises(ValueError, match=r"needs a processor, and .* reads text only"):
            trace(model, tiny.wordpiece(), **given)


def test_tokens_are_numbers_where_only_sound_is_read() -> None:
    import transformers as hf

    reader = hf.WhisperFeatureExtractor(feature_size=8, chunk_length=1, n_fft=400, hop_length=400)
    sound = np.random.default_rng(0).standard_normal(6400).astype(np.float32)
    result = trace(tiny.whisper(), reader, audio=sound)
    relevance = saliency(result)
    assert relevance.targets == (str(result.predictions(1)[0].id),)


def test_axes_and_units_say_what_they_are(bert: Any) -> None:
    axis = trace(*bert, "unbelievable cat").axes()[0]
    assert repr(axis) == "<TokenAxis of 6 tokens; read by token, word, sentence, paragraph>"
    assert repr(axis.units["word"]) == "<Unit word: 4 elements>"


def test_the_budget_forgets_but_never_changes(bert: Any) -> None:
    generous = trace(*bert, "the cat sat .")
    frugal = trace(*bert, "the cat sat .", memory=1)
    assert generous.attention_layer(0).data_ptr() == generous.attention_layer(0).data_ptr()
    first = frugal.attention_layer(0)
    assert frugal.attention_layer(0).data_ptr() != first.data_ptr()
    assert torch.equal(frugal.attention_layer(0), generous.attention_layer(0))
    calls = []
    handle = bert[0].register_forward_hook(lambda *_: calls.append(1))
    frugal.attention_layer(1)
    handle.remove()
    assert not calls, "the model is not run again"


@pytest.mark.parametrize(
    ("size", "n"),
    [(10, 10), ("1GB", 10**9), ("1.5 kB", 1500), ("2GiB", 2**31), ("7", 7), (float("inf"), sys.maxsize)],
)
def test_budgets(size: Any, n: int) -> None:
    assert byte_budget(size) == n


@pytest.mark.parametrize("size", ["much", 0, -1, "", "1XB", True, "1.2.3", None, float("nan"), -float("inf")])
def test_bad_budgets(size: Any) -> None:
    with pytest.raises(ValueError, match="memory must be"):
        byte_budget(size)


def test_queries_and_keys_are_there(bert: Any) -> None:
    result = trace(*bert, "the cat")
    query, key = result.query_key(0)
    assert query.shape == key.shape == (4, 4, 8)
    weights = (query @ key.transpose(1, 2) / 8**0.5).softmax(-1)
    torch.testing.assert_close(weights, result.attention_layer(0))


@pytest.mark.parametrize("text", ["", "  \n"])
def test_empty_text(bert: Any, text: str) -> None:
    with pytest.raises(ValueError, match="text is empty"):
        trace(*bert, text)
    with pytest.raises(ValueError, match="text is empty"):
        trace(*bert, ["a", text])
    with pytest.raises(ValueError, match="text_pair is empty"):
        trace(*bert, "a", text_pair=text)


def test_empty_lists(bert: Any) -> None:
    with pytest.raises(ValueError, match="text must be"):
        trace(*bert, [])
    with pytest.raises(ValueError, match="input_ids are empty"):
        trace(*bert, input_ids=[])
    with pytest.raises(ValueError, match="nothing to read"):
        trace(*bert)


def test_text_that_is_too_long(gpt: Any) -> None:
    long = "cat " * 60
    with pytest.raises(ValueError, match=r"has 120 tokens, and the model takes 40\b.*truncation=True"):
        trace(*gpt, long)
    with pytest.raises(ValueError, match="has 50 tokens"):
        trace(*gpt, input_ids=list(range(50)))
    result = trace(*gpt, long, truncation=True)
    assert len(result.tokens) == 40
    assert "from 120 to 40 tokens" in result.warning
    assert not trace(*gpt, "cat").warning
    assert len(trace(*gpt, long, truncation=True, max_new_tokens=5).tokens) == 45 - 5
    with pytest.raises(ValueError, match="max_new_tokens is 40"):
        trace(*gpt, "cat", max_new_tokens=40)


@pytest.mark.parametrize("family", ["BERT", "RoBERTa", "GPT-2", "OPT", "DistilBERT"])
def test_the_longest_text_reads_the_last_row_of_positions(family: str) -> None:
    model = tiny.build(tiny.TEXT[family])
    table, first = position_table(model)
    rows = []
    table.register_forward_hook(lambda _, __, output: rows.append(output.detach().flatten(0, -2)))
    most = limit_of(model, None)
    trace(model, None, input_ids=[5] * most)
    torch.testing.assert_close(rows[0], table.weight.detach()[first:], rtol=0, atol=0)


def test_positions_that_roberta_keeps_for_padding_do_not_count() -> None:
    model = tiny.build(lambda: tiny._plain("Roberta", "Model", max_position_embeddings=14, pad_token_id=1))
    assert len(trace(model, None, [5] * 12).tokens) == 12
    with pytest.raises(ValueError, match="the model takes 12"):
        trace(model, None, [5] * 13)


def test_layers_and_stacks_out_of_range(bert: Any) -> None:
    result = trace(*bert, "the cat")
    with pytest.raises(IndexError, match="layers 0 to 1"):
        result.attention_layer(2)
    assert torch.equal(result.attention_layer(-1), result.attention_layer(1))
    with pytest.raises(ValueError, match="has 'self'"):
        result.attention_layer(0, "cross")


def test_wrong_arguments_are_answered(bert: Any) -> None:
    model, tokenizer = bert
    with pytest.raises(TypeError, match=r"no keyword 'max_new_token'\. Did you mean 'max_new_tokens'\?"):
        trace(model, tokenizer, "the cat", max_new_token=3)
    with pytest.raises(TypeError, match="model must be"):
        trace(object(), tokenizer, "the cat")
    with pytest.raises(ValueError, match="needs the model's tokenizer"):
        trace(model, None, "the cat")
    with pytest.raises(TypeError, match=r"text must be a string, .*not a dict; pass pictures as image="):
        trace(model, tokenizer, {"pixel_values": torch.zeros(1, 3, 8, 8)})
    with pytest.raises(ValueError, match=r"torch\.uint8 \(8, 8, 3\); pass pictures as image="):
        trace(model, tokenizer, np.zeros((8, 8, 3), dtype="uint8"))
    with pytest.raises(ValueError, match="not text or words and input_ids"):
        trace(model, tokenizer, "the cat", input_ids=[5])
    with pytest.raises(ValueError, match="vocabulary has ids 0 to 119"):
        trace(model, None, [5, 4000])
    with pytest.raises(ValueError, match="must be integers"):
        trace(model, None, torch.rand(3))
    with pytest.raises(ValueError, match="max_new_tokens must be a whole number, 0 or more, not -1"):
        trace(model, tokenizer, "the cat", max_new_tokens=-1)
    with pytest.raises(ValueError, match="one for each text"):
        trace(model, tokenizer, ["a", "b"], text_pair=["c"])


def test_nothing_is_printed(bert: Any, gpt: Any, capfd: pytest.CaptureFixture[str]) -> None:
    trace(*bert, ["the cat", "a b"])
    trace(*gpt, "the cat", max_new_tokens=2)
    trace(*gpt, "cat " * 60, truncation=True)
    trace(tiny.build(tiny.OUTSIDE["GPT-Neo"]), None, [5, 6])
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_suggestions() -> None:
    assert suggest("Layr", ["layer", "head"]) == " Did you mean 'layer'?"
    assert suggest("zzz", ["layer", "head"]) == ""


def test_each_text_of_a_list_keeps_the_inputs_that_it_has_alone(bert: Any) -> None:
    texts = ["the cat sat", "the cat", "the cat sat on the mat"]
    for text, traced in zip(texts, trace(*bert, texts), strict=True):
        alone = trace(*bert, text).inputs
        assert traced.inputs.keys() == alone.keys()
        for name, values in alone.items():
            assert torch.equal(traced.inputs[name], values)
            assert traced.inputs[name].untyped_storage().nbytes() == values.nbytes, "it holds the batch"


def test_words_that_are_read_late_are_those_of_the_text_when_it_was_traced(bert: Any) -> None:
    early, late, pickled = (trace(*bert, "the cat sat. the mat sat.") for _ in range(3))
    units = dict(early.units)
    assert list(units) == ["token", "word", "sentence", "paragraph"]
    assert "frame" not in late.units
    assert late.units["sentence"] == units["sentence"]
    assert pickle.loads(pickle.dumps(pickled.axes()[0])) == early.axes()[0]
    with pytest.raises(ValueError, match="does not follow 'the'"):
        trace(*bert, "the cat sat", words=["the", "dog"])
