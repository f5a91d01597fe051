"""Whatever people have in hand is traced: names, pipelines, and models inside other libraries' objects."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

import attnwidgets as aw
from attnwidgets.tracing.recording.borrow import unwrap
from tests.tracing import tiny
from tests.tracing.test_answers import MOODS, made, shown
from tests.tracing.test_answers import TEXT as LONGER
from tests.tracing.test_borrow import state_of

TEXT = "the cat sat."


@pytest.fixture(scope="module")
def bert() -> tuple[Any, Any]:
    return tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()


@pytest.fixture(scope="module")
def folder(bert: Any, tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("saved")
    for part in bert:
        part.save_pretrained(path)
    return str(path)


def same(actual: Any, expected: Any) -> bool:
    """Return whether two traces hold the same tokens and the same numbers."""
    layers = range(expected.n_layers())
    return actual.tokens == expected.tokens and all(
        torch.equal(actual.attention_layer(layer), expected.attention_layer(layer)) for layer in layers
    )


def test_a_name_and_a_text_are_enough(bert: Any, folder: str) -> None:
    expected = aw.trace(*bert, TEXT)
    for result in (
        aw.trace(folder, TEXT),
        aw.trace(folder, text=TEXT),
        aw.trace(folder, folder, TEXT),
        aw.trace(folder, TEXT, bert[1]),
        aw.trace(bert[0], TEXT, bert[1]),
    ):
        assert same(result, expected)
    several = aw.trace(folder, [TEXT, "the cat"])
    assert [len(trace.tokens) for trace in several] == [6, 4]
    pair = aw.trace(folder, TEXT, text_pair="a b")
    assert pair.tokens == aw.trace(*bert, TEXT, text_pair="a b").tokens


def test_what_may_be_a_text_or_a_tokenizer_is_asked_back(bert: Any, folder: str) -> None:
    model, tokenizer = bert
    with pytest.raises(ValueError, match=r"is a folder, and no text was passed: pass text="):
        aw.trace(model, folder)
    with pytest.raises(ValueError, match=r"text needs the model's tokenizer: aw\.trace\(model, tokenizer"):
        aw.trace(model, TEXT)
    with pytest.raises(TypeError, match=r"the model came later: aw\.trace\(model, tokenizer, text\)"):
        aw.trace(tokenizer, model, TEXT)
    with pytest.raises(TypeError, match=r"the model came later"):
        aw.trace(TEXT, model, tokenizer)
    with pytest.raises(ValueError, match=r"if it is the text, pass text="):
        aw.trace(model, "the cat", words=["the", "cat"])
    with pytest.raises(ValueError, match=r"text needs the model's tokenizer"):
        aw.trace(model, "word " * 1000)  # longer than any path


def test_a_trace_is_no_model(bert: Any) -> None:
    trace = aw.trace(*bert, TEXT)
    with pytest.raises(TypeError, match=r"it is a trace already; aw\.Explorer\(trace\)"):
        aw.trace(trace, bert[1], TEXT)
    with pytest.raises(TypeError, match=r"aw\.from_attentions"):
        aw.trace({"blocks.0.attn.hook_pattern": torch.ones(1, 1, 1, 1)}, bert[1], TEXT)


PIPELINES = {
    "text-classification": lambda: hf.BertForSequenceClassification(_bert_config()),
    "token-classification": lambda: hf.BertForTokenClassification(_bert_config()),
    "fill-mask": lambda: hf.BertForMaskedLM(_bert_config()),
    "feature-extraction": lambda: hf.BertModel(_bert_config()),
    "text-generation": lambda: hf.BertLMHeadModel(_bert_config(is_decoder=True)),
}


def _bert_config(**options: Any) -> Any:
    return hf.BertConfig(vocab_size=tiny.VOCAB, **tiny.SMALL, **options)


@pytest.mark.parametrize("task", PIPELINES)
def test_a_pipeline_is_traced_and_comes_back_as_it_was(task: str) -> None:
    pipeline = hf.pipeline(task, model=tiny.build(PIPELINES[task]), tokenizer=tiny.wordpiece())
    text = "the [MASK] sat." if task == "fill-mask" else TEXT
    options = {"do_sample": False, "max_new_tokens": 3} if task == "text-generation" else {}
    # A pipeline changes its tokenizer and configs when it runs: that is done before.
    before = [
        str(pipeline(text, **options)),
        state_of(pipeline.model),
        pipeline.tokenizer.backend_tokenizer.to_str(),
    ]
    result = aw.trace(pipeline, text)
    assert same(result, aw.trace(pipeline.model, pipeline.tokenizer, text))
    assert result.model is pipeline.model
    assert result.tokenizer is pipeline.tokenizer
    after = [
        str(pipeline(text, **options)),
        state_of(pipeline.model),
        pipeline.tokenizer.backend_tokenizer.to_str(),
    ]
    assert [after[0], after[2]] == [before[0], before[2]]
    assert after[1] == before[1]


def test_a_classification_pipelines_pair_of_texts_is_read_as_it_reads_it() -> None:
    model, tokenizer = tiny.build(PIPELINES["text-classification"]), tiny.wordpiece()
    pipeline = hf.pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    pair = {"text": "the cat", "text_pair": "sat."}
    result = aw.trace(pipeline, pair)
    assert result.tokens == aw.trace(pipeline, "the cat", text_pair="sat.").tokens
    scores = {score["label"]: score["score"] for score in pipeline(pair)}
    for prediction in result.predictions():
        assert prediction.probability == pytest.approx(scores[prediction.label], abs=1e-5)
    assert same(aw.trace(pipeline, {"question": "the cat", "context": "sat."}), result)


@pytest.mark.slow
def test_a_generation_pipeline_continues_a_chat_as_it_would(smollm2: Any) -> None:
    model, tokenizer = smollm2
    pipeline = hf.pipeline("text-generation", model=model, tokenizer=tokenizer)
    chat = [{"role": "user", "content": "Say hello."}]
    options = {"max_new_tokens": 4, "do_sample": False, "return_full_text": False}
    said = pipeline(
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True), **options
    )
    result = aw.trace(pipeline, chat, max_new_tokens=4)
    assert result.boundary is not None
    assert tokenizer.decode(result.input_ids[result.boundary :]) == said[0]["generated_text"]
    assert result.tokens == aw.trace(pipeline, messages=chat, max_new_tokens=4).tokens


def test_image_and_audio_pipelines_read_with_their_own_processors() -> None:
    model = tiny.build(tiny.IMAGE["ViT"])
    processor = hf.ViTImageProcessor(size={"height": 24, "width": 24})
    pipeline = hf.pipeline("image-classification", model=model, image_processor=processor)
    picture = np.zeros((30, 30, 3), dtype=np.uint8)
    assert same(aw.trace(pipeline, image=picture), aw.trace(model, processor, image=picture))
    speech = SimpleNamespace(
        model=tiny.wav2vec2(),
        tokenizer=tiny.wordpiece(),
        feature_extractor=hf.Wav2Vec2FeatureExtractor(),
        image_processor=None,
        processor=None,
    )
    samples = np.sin(np.arange(1600))
    expected = aw.trace(speech.model, speech.feature_extractor, audio=samples)
    assert same(aw.trace(speech, audio=samples), expected)


@pytest.mark.slow
def test_a_compiled_model_in_a_pipeline_is_traced() -> None:
    model, tokenizer = tiny.build(PIPELINES["text-classification"]), tiny.wordpiece()
    pipeline = hf.pipeline("text-classification", model=model, tokenizer=tokenizer)
    pipeline.model = torch.compile(model)
    assert same(aw.trace(pipeline, TEXT), aw.trace(model, tokenizer, TEXT))


class Envoy:
    """nnsight's wrapper of a model: it looks unknown names up in the module, and fails with other errors."""

    def __init__(self, module: nn.Module, tokenizer: Any) -> None:
        self._module, self.tokenizer = module, tokenizer
        self.model = SimpleNamespace(path="model")  # an envoy of the child of this name
        for part in module.modules():
            vars(part)["forward"] = Controller(part)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_module"], name)


class Controller:
    """nnsight's replacement of every `forward`: an object that finds its module by a weak reference."""

    def __init__(self, module: nn.Module) -> None:
        self.module_ref = weakref.ref(module)
        self.__wrapped__ = type(module).forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self.module_ref()
        return type(module).forward(module, *args, **kwargs)


def test_the_model_inside_nnsights_wrapper_is_traced() -> None:
    model, tokenizer = tiny.build(tiny.TEXT["Llama"]), tiny.wordpiece()
    expected = aw.trace(model, tokenizer, TEXT)
    saliency = aw.saliency(expected).values
    wrapped = Envoy(model, tokenizer)
    for result in (aw.trace(wrapped, TEXT), aw.trace(model, tokenizer, TEXT)):
        assert same(result, expected)
        np.testing.assert_array_equal(aw.saliency(result).values, saliency)
    assert all(isinstance(vars(part)["forward"], Controller) for part in model.modules())
    with aw.ablate_heads(wrapped, {0: [1]}):
        assert not same(aw.trace(wrapped, TEXT), expected)


class Part(nn.Module):
    """A TransformerBridge's part, which holds the original module, and a hook point."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self._original_component = original
        self.hook_out = Point()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._original_component(*args, **kwargs)


class Attention(Part):
    """It computes attention by itself, so that transformers' attention interface is never called."""

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> Any:
        return self._original_component.o_proj(torch.zeros_like(hidden_states)), None


class Point(nn.Identity):
    """A hook point."""

    def __init__(self) -> None:
        super().__init__()
        self.fwd_hooks: list[Any] = []

    def add_hook(self, hook: Any) -> None:
        def full_hook(module: nn.Module, inputs: Any, output: Any) -> Any:
            del module, inputs
            return hook(output, hook=self)

        self.fwd_hooks.append(self.register_forward_hook(full_hook))


class Bridge(nn.Module):
    """A TransformerBridge: its parts replace those of the model that it is built around."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.__dict__["original_model"] = model
        self.tokenizer = tokenizer
        self._weights_processed = False
        for number, layer in enumerate(model.model.layers):
            layer.self_attn = Attention(layer.self_attn)
            layer.mlp.up_proj = Part(layer.mlp.up_proj)
            model.model.layers[number] = Part(layer)
        self.blocks = model.model.layers

    def run_with_cache(self, text: str) -> Any: ...

    def to_str_tokens(self, text: str) -> Any: ...


Bridge.__module__ = "lens.bridge"  # the library's hooks are told from others by their module


@pytest.fixture
def bridged() -> tuple[Any, Any]:
    """A bridge, and the trace of the model before the bridge was built around it."""
    model, tokenizer = tiny.build(tiny.TEXT["Llama"]), tiny.wordpiece()
    expected = aw.trace(model, tokenizer, TEXT)
    return Bridge(model, tokenizer), expected


def test_a_bridge_is_traced_as_the_model_it_was_built_around(bridged: Any) -> None:
    bridge, expected = bridged
    result = aw.trace(bridge, TEXT)
    assert same(result, expected)
    assert torch.equal(result.logits, expected.logits)
    plain = aw.trace(tiny.build(tiny.TEXT["Llama"]), bridge.tokenizer, TEXT)
    np.testing.assert_array_equal(aw.value_zeroing(result).values, aw.value_zeroing(plain).values)
    assert unwrap(bridge) is result.model
    assert isinstance(bridge.original_model.model.layers[0], Part), "the bridge stays as it is"
    with aw.ablate_heads(bridge, {0: [1]}):
        ablated = aw.trace(bridge, TEXT)
    assert not torch.equal(ablated.logits, expected.logits)
    # Weights are shared, so later changes of them are seen.
    bridge.original_model.lm_head.weight.data.zero_()
    assert not aw.trace(bridge, TEXT).logits.any()


def test_the_model_in_pieces_is_refused_rather_than_misread(bridged: Any) -> None:
    bridge, _ = bridged
    with pytest.raises(ValueError, match="outside transformers' attention interface"):
        aw.trace(bridge.original_model, bridge.tokenizer, TEXT)


def test_a_bridge_that_computes_something_else_is_refused_with_what_to_do(bridged: Any) -> None:
    bridge, expected = bridged
    cache = r"aw\.from_attentions\(cache, model\.to_str_tokens\(text\)\)"
    bridge.blocks[0].hook_out.add_hook(lambda states, hook: states * 0)
    with pytest.raises(TypeError, match=rf"a hook at 'blocks\.0\.hook_out'.*{cache}"):
        aw.trace(bridge, TEXT)
    bridge.blocks[0].hook_out.fwd_hooks.pop().remove()
    assert same(aw.trace(bridge, TEXT), expected)
    bridge._weights_processed = True
    with pytest.raises(TypeError, match=rf"whose weights were changed \(compatibility mode\).*{cache}"):
        aw.trace(bridge, TEXT)
    del bridge.__dict__["original_model"]
    with pytest.raises(TypeError, match=rf"computes by itself.*{cache}"):  # a HookedTransformer
        aw.trace(bridge, TEXT)


def test_attention_that_was_replaced_for_the_whole_process_is_not_called(monkeypatch: Any) -> None:
    """TransformerLens 4.2 wraps `eager_attention_forward` of Gemma's module as soon as a bridge is built."""
    from transformers.models.gemma2 import modeling_gemma2 as module

    model, tokenizer = tiny.build(tiny.TEXT["Gemma 2"]), tiny.wordpiece()
    expected = aw.trace(model, tokenizer, TEXT)
    original = module.eager_attention_forward

    def changed(*args: Any, **kwargs: Any) -> Any:
        output, weights = original(*args, **kwargs)
        return output, weights * 0

    monkeypatch.setattr(module, "eager_attention_forward", changed)
    assert same(aw.trace(model, tokenizer, TEXT), expected)


@pytest.mark.parametrize(
    "options", [{"truncation": True, "max_length": 6}, {"function_to_apply": "sigmoid"}, {}]
)
def test_a_pipeline_is_traced_with_its_own_options(options: dict[str, Any]) -> None:
    model = made("Bert", "SequenceClassification", id2label=MOODS)
    pipeline = hf.pipeline(
        "text-classification", model=model, tokenizer=tiny.wordpiece(), top_k=None, **options
    )
    trace = aw.trace(pipeline, LONGER)
    assert shown(trace) == pytest.approx(
        {item["label"]: item["score"] for item in pipeline(LONGER)[0]}, abs=1e-6
    )
    assert ("cut" in trace.warning) == ("truncation" in options)


def test_an_option_of_a_pipeline_that_is_not_followed_is_named() -> None:
    model = made("Bert", "SequenceClassification", id2label=MOODS)
    pipeline = hf.pipeline("text-classification", model=model, tokenizer=tiny.wordpiece(), stride=2)
    assert (
        "options of the pipeline that the trace does not follow: 'stride'"
        in aw.trace(pipeline, LONGER).warning
    )


def test_a_zero_shot_pipeline_asks_for_its_hypothesis() -> None:
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    model = made("Bert", "SequenceClassification", id2label=names, label2id={v: k for k, v in names.items()})
    pipeline = hf.pipeline("zero-shot-classification", model=model, tokenizer=tiny.wordpiece())
    with pytest.raises(ValueError, match=r"text_pair is missing: a zero-shot pipeline asks"):
        aw.trace(pipeline, "the cat sat.")
    score = pipeline("the cat sat.", ["cat"], hypothesis_template="a {}.", multi_label=True)["scores"][0]
    logits = aw.trace(pipeline, "the cat sat.", text_pair="a cat.").logits
    assert logits is not None
    assert float(logits[[0, 2]].softmax(-1)[1]) == pytest.approx(score, abs=1e-6)
