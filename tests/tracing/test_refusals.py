"""Models and texts that cannot be traced are refused in words, and half a character stops nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

import attnwidgets as aw
from attnwidgets.tracing.failed_pass import told_of_pass
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny

IDS = [5, 17, 31]


@pytest.fixture(scope="module")
def bert() -> Any:
    return tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()


def small(vocabulary: int, make: Any = hf.BertForMaskedLM, config: Any = hf.BertConfig) -> Any:
    return tiny.build(lambda: make(config(vocab_size=vocabulary, **tiny.SMALL)))


def test_a_tokenizer_with_more_entries_than_the_model() -> None:
    reader = tiny.wordpiece()
    model = small(reader.convert_tokens_to_ids("cat"))
    says = r"input_ids hold 9, .* ids 0 to 8: 9 is 'cat' in \w+, which has 27 tokens.*resize_token_embeddings"
    for given in ({"text": "the cat"}, {"text": ["the", "the cat"]}, {"words": ["the", "cat"]}):
        with pytest.raises(ValueError, match=says):
            trace(model, reader, **given)
    assert trace(model, reader, "the unbelievable").tokens == (
        "[CLS]",
        "the",
        "un",
        "##believ",
        "##able",
        "[SEP]",
    )
    with pytest.raises(ValueError, match=r"hold -1, .* ids 0 to 8$"):
        trace(model, reader, [5, -1])
    with pytest.raises(ValueError, match=r"hold 10{12}, .* ids 0 to 8$"):
        trace(model, reader, [5, 10**12])


def test_a_padding_token_that_the_model_lacks_changes_nothing() -> None:
    reader = tiny.wordpiece()
    model = small(len(reader))
    expected = [trace(model, reader, text).attention_layer(1) for text in ("the cat", "the")]
    reader.add_special_tokens({"pad_token": "<fill>"})
    result = [item.attention_layer(1) for item in trace(model, reader, ["the cat", "the"])]
    for actual, wanted in zip(result, expected, strict=True):
        assert torch.allclose(actual, wanted, atol=1e-6)


def test_what_a_decoder_reads_is_in_its_vocabulary() -> None:
    model = tiny.build(
        lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(
                vocab_size=9, d_model=32, d_kv=8, d_ff=37, num_layers=1, num_heads=4, decoder_start_token_id=0
            )
        )
    )
    with pytest.raises(ValueError, match=r"decoder_input_ids hold 9, .*'cat'"):
        trace(model, tiny.wordpiece(), "the", target_text="the cat")


def test_a_corpus_in_another_models_tokens() -> None:
    from attnwidgets.sae.corpus import Corpus

    reader = tiny.wordpiece()
    corpus = Corpus(small(9), reader, ["the cat"])
    with pytest.raises(ValueError, match="input_ids hold 9"):
        corpus.inputs(list(corpus.windows()))


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([None], r"input_ids must be integers .* not \[None\]"),
        ([[1, 2], [3]], r"rows of one length, not \[\[1, 2\], \[3\]\]"),
        ([10**30], "input_ids must be integers"),
        (["a"], r"input_ids must be integers .* not \['a'\]"),
        (torch.tensor([1, 2], device="meta"), "input_ids must be integers .*meta"),
        ({1, 2}, "input_ids must be integers"),
        (torch.tensor(5), r"must be integers \[token\]"),
    ],
)
def test_ids_that_are_none(bert: Any, ids: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trace(bert[0], None, input_ids=ids)


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        ([1], r"attention_mask is \[1\], and input_ids are \[3\]"),
        ([1] * 4, r"attention_mask is \[4\], and input_ids are \[3\]"),
        ([[1], [1], [1], [1]], r"attention_mask is \[4, 1\]"),
        ([0, 0, 0], "attention_mask hides every token of row 0"),
        ("111", "attention_mask must be integers"),
        ([None] * 3, "attention_mask must be integers"),
    ],
)
def test_masks_that_do_not_fit(bert: Any, mask: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trace(bert[0], None, input_ids=IDS, attention_mask=mask)
    with pytest.raises(ValueError, match=says):
        trace(bert[0], None, {"input_ids": IDS, "attention_mask": mask})


def test_sparse_ids_are_read(bert: Any) -> None:
    ids = torch.tensor(IDS)
    assert trace(bert[0], None, ids.to_sparse()).input_ids.tolist() == IDS


@pytest.mark.parametrize("new", ["3", None, 1.5, -1])
def test_a_number_of_new_tokens_that_is_none(bert: Any, new: Any) -> None:
    with pytest.raises(ValueError, match=f"max_new_tokens must be a whole number, 0 or more, not {new!r}"):
        trace(*bert, "the cat", max_new_tokens=new)


def test_a_second_text_without_a_first(bert: Any) -> None:
    with pytest.raises(ValueError, match="text_pair is the second text"):
        trace(bert[0], None, input_ids=IDS, text_pair="the cat")


def test_a_model_without_weights() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    with torch.device("meta"):
        empty = hf.LlamaForCausalLM(model.config)
    model.model.layers[1].to("meta")
    for item, first in (
        (empty, "model.embed_tokens.weight"),
        (model, "model.layers.1.self_attn.q_proj.weight"),
    ):
        for new in (0, 2):
            with pytest.raises(ValueError, match=f"{first} is on the meta device.*from_pretrained"):
                trace(item, None, IDS, max_new_tokens=new)


class NanoGPT(nn.Module):
    """A language model as people write them: no config, no keywords, a tuple comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(120, 8), nn.Linear(8, 120)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, idx: Any, targets: Any = None) -> Any:
        states = self.embed(idx)
        return self.head(states + self.attention(states, states, states)[0]), targets


class OwnNames(NanoGPT):
    """A model that takes transformers' inputs and not its options."""

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        return super().forward(input_ids)


class AnyKeyword(NanoGPT):
    """A model that takes everything and heeds little."""

    def forward(self, input_ids: Any, **_: Any) -> Any:
        return super().forward(input_ids)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (NanoGPT(), "NanoGPT cannot be traced.*take 'input_ids'.*trace_module.*from_attentions"),
        (OwnNames(), "OwnNames cannot be traced.*take 'return_dict'.*trace_module.*from_attentions"),
        (nn.Linear(3, 3), "Linear cannot be traced.*take 'input_ids'.*trace_module.*from_attentions"),
        (AnyKeyword(), "AnyKeyword cannot be traced.*from_attentions"),
        (
            torch.jit.trace(nn.Linear(3, 3), torch.rand(1, 3)),
            "cannot be traced.*TorchScript.*from_attentions",
        ),
    ],
    ids=["NanoGPT", "own names", "Linear", "any keyword", "TorchScript"],
)
def test_a_model_of_ones_own(model: Any, says: str) -> None:
    model.train()
    with pytest.raises(UnsupportedModelError, match=says):
        trace(model, None, IDS)
    with pytest.raises(UnsupportedModelError, match=says):
        trace(model, tiny.wordpiece(), "the cat")
    assert model.training


def test_a_type_error_of_the_models_own_comes_through() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    model.model.layers[0].register_forward_hook(lambda *_: int([]))
    with pytest.raises(TypeError, match="int"):
        trace(model, None, IDS)


def test_an_error_of_transformers_is_preceded_by_the_inputs() -> None:
    model = tiny.clip()
    says = r"CLIPModel raised AttributeError when it was run on input_ids \[1, 3\], attention_mask \[1, 3\]: "
    with pytest.raises(ValueError, match=says) as raised:
        trace(model, None, IDS)
    assert isinstance(raised.value.__cause__, AttributeError)
    with pytest.raises(ValueError, match=r"was run on pixel_values \[1, 3, 24, 24\]: You have to"):
        trace(model, None, image=torch.zeros(3, 24, 24))
    with pytest.raises(ValueError, match="give one input, not image and input_ids"):
        trace(model, None, image=torch.zeros(3, 24, 24), input_ids=IDS)


def test_a_pass_that_runs_out_of_memory_or_is_interrupted_is_not_blamed_on_its_inputs() -> None:
    for error in (KeyboardInterrupt(), torch.OutOfMemoryError("full"), MemoryError()):
        with pytest.raises(type(error)) as raised, told_of_pass(tiny.clip(), {}):
            raise error
        assert raised.value is error


# -- half characters ---------------------------------------------------------------------------------------

HALF = "the \ud800 cat"
TORN = "the \ud83d\ude00 cat"


@pytest.mark.parametrize("kind", ["wordpiece", "byte_level", "metaspace"])
def test_half_a_character_is_read_as_a_replacement(kind: str) -> None:
    reader = getattr(tiny, kind)()
    model = small(len(reader))
    result, whole = trace(model, reader, HALF), trace(model, reader, HALF.replace("\ud800", "\ufffd"))
    assert result.input_ids.tolist() == whole.input_ids.tolist()
    assert result.text == "the \ufffd cat"
    assert "half characters (lone surrogates) in the text are read as \ufffd" in result.warning
    assert whole.warning == ""
    pair = trace(model, reader, "the cat", text_pair=HALF)
    assert "half characters" in pair.warning
    words = trace(model, reader, words=["the", "\ud800", "cat"])
    assert ("\ufffd" in words.units["word"].labels) == (kind != "wordpiece"), "BERT drops it"


def test_two_halves_make_their_character() -> None:
    reader = tiny.byte_level()
    result = trace(small(len(reader)), reader, TORN)
    assert result.text == "the 😀 cat"
    assert result.warning == ""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["html", "svg", "pdf", "png", "safetensors", "folder"])
def test_labels_with_half_a_character_are_written(tmp_path: Any, ending: str) -> None:
    tokens = ["the", "\ud800", "c\udfff", "\ud83d\ude00"]
    result = aw.from_attentions(np.full((1, 2, 4, 4), 0.25), tokens, model_id="\ud800", words=[0, 1, 1, 2])
    assert result.tokens == ("the", "\ufffd", "c\ufffd", "😀")
    assert "\ufffdc\ufffd" in result.units["word"].labels
    path = tmp_path / f"file.{ending}"
    if ending == "html":
        aw.to_html(aw.Explorer(result, methods=["attention"], title="\ud800"), path, headings=["\ud800"])
        assert "\ufffd" in path.read_text(encoding="utf-8")
    elif ending in ("safetensors", "folder"):
        path = path.with_suffix("" if ending == "folder" else f".{ending}")
        assert aw.load(aw.attention(result).save(path)).query.tokens == result.tokens
    else:
        aw.Heatmap(result, title="\ud800").save(path)
        assert path.stat().st_size


# -- given numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (torch.rand(2, 2, 3, 3).to("meta"), "attentions is on the meta device"),
        ([torch.rand(2, 3, 3), torch.rand(2, 3, 3).to("meta")], r"attentions\[1\] is on the meta device"),
        (torch.rand(3, 3).to(torch.complex64), "complex64 numbers cannot be weights"),
        (np.eye(3) * 1j, "complex128 numbers cannot be weights"),
        (np.array([["2020-01-01"]], dtype="datetime64[s]"), "datetime64.* numbers cannot be weights"),
    ],
)
def test_arrays_that_hold_no_weights(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        aw.from_attentions(given)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_weights_are_weights(layout: Any) -> None:
    weights = torch.eye(3).to_sparse(layout=layout)
    assert torch.equal(aw.from_attentions(weights).attention_layer(0)[0], torch.eye(3))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"tokens": 5}, TypeError, "tokens must be a list of strings, one for each token, not 5"),
        ({"key_tokens": 3.0}, TypeError, "key_tokens must be a list"),
        ({"boundary": -1}, ValueError, "boundary is -1; .* 0 to 3"),
        ({"boundary": 99}, ValueError, "boundary is 99"),
        ({"boundary": "1"}, ValueError, "boundary is '1'"),
        ({"second_text": "1"}, ValueError, "second_text is '1'; .* 1 to 2"),
        ({"words": 5}, TypeError, "words must be word numbers .*, not 5"),
        ({"words": [["a"]]}, ValueError, r"words\[0\] holds token 'a'"),
        ({"words": [0.5, 1, 2]}, TypeError, r"words\[0\] is 0.5"),
        ({"words": [0, 1]}, ValueError, "words has 2 entries, and there are 3 tokens"),
        ({"memory": "."}, ValueError, "memory must be"),
    ],
)
def test_options_of_given_weights(options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        aw.from_attentions(np.eye(3), **options)


def test_words_without_tokens_are_words() -> None:
    assert aw.from_attentions(np.eye(3), words=[0, 0, 1]).units["word"].spans == ((0, 1), (2,))
    assert aw.from_attentions(np.eye(3), second_text=2).axes()[0].segment == (0, 0, 1)
