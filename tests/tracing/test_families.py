"""Recorded attention is the eager attention, bit for bit, however the model was loaded."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny

IDS = [5, 17, 31, 9, 44, 8, 23, 60, 11]


def eager(model: Any, **inputs: Any) -> Any:
    """Return the attention that transformers itself reports under eager attention.

    Set on each config by hand: `set_attn_implementation` misses T5's stacks in transformers 5.15 to 5.19.
    """
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values()
    before = [config._attn_implementation_internal for config in configs]
    for config in configs:
        config._attn_implementation_internal = "eager"
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    for config, name in zip(configs, before, strict=True):
        config._attn_implementation_internal = name
    return outputs


def assert_same(actual: Any, stack: str, expected: Any) -> None:
    """Assert that every layer of a stack is as expected, to the last bit."""
    assert actual.n_layers(stack) == len(expected) > 0
    for layer, weights in enumerate(expected):
        assert torch.equal(actual.attention_layer(layer, stack), weights[0].float())


@pytest.mark.parametrize("family", tiny.TEXT)
@pytest.mark.parametrize("loaded", [None, "eager"], ids=["as loaded", "eager"])
def test_text_models_are_recorded_exactly(family: str, loaded: str | None) -> None:
    model = tiny.build(tiny.TEXT[family], implementation=loaded)
    result = trace(model, None, IDS)
    expected = eager(model, input_ids=torch.tensor([IDS])).attentions
    assert loaded or family == "Gemma 2" or model.config._attn_implementation == "sdpa"
    assert result.stacks == ("self",)
    assert_same(result, "self", expected)
    assert result.tokens == tuple(str(i) for i in IDS)
    assert result.n_heads() == 4
    assert not result.warning
    assert result.is_causal() == (
        family not in ("BERT", "RoBERTa", "DistilBERT", "ELECTRA", "ALBERT", "ModernBERT")
    )


@pytest.mark.parametrize("family", tiny.SEQ2SEQ)
def test_encoder_decoder_models_have_three_stacks(family: str) -> None:
    model = tiny.build(tiny.SEQ2SEQ[family])
    result = trace(model, None, IDS, max_new_tokens=4)
    decoder = [int(t) for t in result.axes("decoder")[0].tokens]
    assert decoder[0] == 0
    assert result.boundary == 1
    outputs = eager(model, input_ids=torch.tensor([IDS]), decoder_input_ids=torch.tensor([decoder]))
    assert result.stacks == ("encoder", "decoder", "cross")
    assert_same(result, "encoder", outputs.encoder_attentions)
    assert_same(result, "decoder", outputs.decoder_attentions)
    assert_same(result, "cross", outputs.cross_attentions)
    assert [len(axis) for axis in result.axes("cross")] == [len(decoder), len(IDS)]
    assert result.is_causal("decoder")
    assert not result.is_causal("encoder")


@pytest.mark.parametrize("family", tiny.IMAGE)
def test_vision_models_have_patches_in_a_grid(family: str) -> None:
    model = tiny.build(tiny.IMAGE[family])
    side = model.config.image_size
    picture = torch.randn(3, side, side, generator=torch.Generator().manual_seed(1))
    result = trace(model, None, image=picture)
    assert_same(result, "self", eager(model, pixel_values=picture[None]).attentions)
    patches = result.units["patch"]
    rows, columns = patches.grid or (0, 0)
    assert (rows, columns) == (side // model.config.patch_size,) * 2
    registers = getattr(model.config, "num_register_tokens", 0)
    assert sum(patches.special) == 1 + registers
    assert len(patches) == rows * columns + 1 + registers
    assert patches.labels[0] == "[CLS]"
    assert patches.labels[1 + registers] == "0,0"
    assert patches.labels[-1] == f"{rows - 1},{columns - 1}"


def test_audio_frames_have_times() -> None:
    model = tiny.wav2vec2()
    wave = torch.randn(400, generator=torch.Generator().manual_seed(1))
    result = trace(model, None, audio=wave, sampling_rate=16_000)
    assert_same(result, "self", eager(model, input_values=wave[None]).attentions)
    times = result.units["frame"].times
    assert times is not None
    # Kernels of 10 and 3 samples with strides of 5 and 2: every 10 samples, 20 are read.
    assert times[0] == (0.0, pytest.approx(20 / 16_000))
    assert times[1][0] == pytest.approx(10 / 16_000)
    assert times[-1][1] <= 400 / 16_000


def test_whisper_reads_frames_and_writes_tokens() -> None:
    model = tiny.whisper()
    features = torch.randn(1, 8, 40, generator=torch.Generator().manual_seed(1))
    result = trace(model, None, audio=features, max_new_tokens=3)
    decoder = torch.tensor([[int(t) for t in result.axes("decoder")[0].tokens]])
    outputs = eager(model, input_features=features, decoder_input_ids=decoder)
    for stack in ("encoder", "decoder"):
        assert_same(result, stack, getattr(outputs, f"{stack}_attentions"))
    assert_same(result, "cross", outputs.cross_attentions)


def test_clip_has_a_stack_for_each_tower() -> None:
    model = tiny.clip()
    model.text_model.config._attn_implementation = "eager"
    before = (model.config._attn_implementation, "eager", model.vision_model.config._attn_implementation)
    from attnwidgets.tracing.recording.batch import collate, traces_of
    from attnwidgets.tracing.recording.borrow import borrowed
    from attnwidgets.tracing.recording.inputs import Sample, text_of_ids
    from attnwidgets.tracing.recording.recorded_pass import record

    picture = torch.randn(1, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    sample = Sample(IDS, text_of_ids(None, IDS), others={"pixel_values": picture})
    with borrowed(model) as twin:
        inputs = collate(twin, None, [sample])
        (result,) = traces_of(twin, model, None, [sample], inputs, record(twin, inputs), 10**9)
    assert result.stacks == ("text", "vision")
    with torch.no_grad():
        for config in (model.config, model.text_model.config, model.vision_model.config):
            config._attn_implementation = "eager"
        text = model.text_model(torch.tensor([IDS]), output_attentions=True).attentions
        vision = model.vision_model(picture, output_attentions=True).attentions
    assert_same(result, "text", text)
    assert_same(result, "vision", vision)
    assert result.axes("vision")[0].units["patch"].grid == (3, 3)
    assert before[1] == "eager"


def test_clip_towers_keep_their_own_implementation() -> None:
    model = tiny.clip()
    model.text_model.config._attn_implementation_internal = "eager"
    trace(model.vision_model, None, image=torch.zeros(3, 24, 24))
    configs = (model.config, model.text_model.config, model.vision_model.config)
    assert [c._attn_implementation for c in configs] == ["sdpa", "eager", "sdpa"]


@pytest.mark.parametrize("family", tiny.UNFOLLOWED)
def test_models_that_cannot_be_followed_are_taken_from_their_own_output(family: str) -> None:
    model = tiny.build(tiny.UNFOLLOWED[family])
    result = trace(model, None, IDS)
    assert_same(result, "self", eager(model, input_ids=torch.tensor([IDS])).attentions)
    assert "attention interface" in result.warning
    assert re.search(r"layer 0 \(GPTNeoSelfAttention\) has a softmax of \[1, 4, 9, 9\]", result.warning)
    with pytest.raises(UnsupportedModelError, match="queries and keys"):
        result.query_key(0)


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "Llama", "Gemma 3"])
def test_bfloat16_is_recorded_exactly(family: str) -> None:
    model = tiny.build(tiny.TEXT[family]).to(torch.bfloat16)
    result = trace(model, None, IDS)
    assert_same(result, "self", eager(model, input_ids=torch.tensor([IDS])).attentions)
    assert result.attention_layer(0).dtype == torch.float32
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())


def test_float64_is_not_rounded() -> None:
    model = tiny.build(tiny.TEXT["BERT"]).double()
    result = trace(model, None, IDS)
    expected = eager(model, input_ids=torch.tensor([IDS])).attentions
    assert result.dtype == "float64"
    assert torch.equal(result.attention_layer(1), expected[1][0])


def windowed(head: str) -> Any:
    import transformers as hf

    windows = {"attention_window": [8, 4], "pad_token_id": 1, "sep_token_id": 2, "initializer_range": 0.4}
    config = hf.LongformerConfig(vocab_size=tiny.VOCAB, **tiny.SMALL, **windows, max_position_embeddings=66)
    return tiny.build(lambda: getattr(hf, f"LongformerFor{head}")(config))


def softmax_in_windows(module: Any, states: torch.Tensor, reach: int, seen: list[int]) -> torch.Tensor:
    """Return attention [head, query, key]: of a window, and from and to tokens that attend everywhere."""

    def heads(layer: Any) -> torch.Tensor:
        return layer(states).unflatten(-1, (4, -1)).transpose(0, 1)

    positions = torch.arange(len(states))
    near = (positions[:, None] - positions).abs() <= reach
    near[:, seen] = True
    scale = module.head_dim**-0.5
    scores = heads(module.query) @ heads(module.key).mT * scale
    weights = scores.masked_fill(~near, float("-inf")).softmax(-1)
    to_all = (heads(module.query_global) @ heads(module.key_global).mT * scale).softmax(-1)
    weights[:, seen] = to_all[:, seen]
    return weights


@pytest.mark.parametrize(
    ("head", "n_global"), [("MaskedLM", 0), ("SequenceClassification", 1), ("QuestionAnswering", 3)]
)
@pytest.mark.parametrize("length", [7, 10, 23])
def test_attention_in_windows_is_shown_from_token_to_token(head: str, n_global: int, length: int) -> None:
    # In a classifier's window of 8 beside a token that all see, 10 tokens have 10 columns.
    model = windowed(head)
    ids = [0, 5, 6, 2, 2, 8, *range(20, 20 + length - 7), 2]
    result = trace(model, None, ids)
    assert [axis.tokens for axis in result.axes()] == [tuple(map(str, ids))] * 2
    assert "numbered" not in result.warning
    layers = model.longformer.encoder.layer
    states: list[torch.Tensor] = []
    hooks = [
        layer.attention.register_forward_pre_hook(lambda _, args: states.append(args[0][0, :length]))
        for layer in layers
    ]
    with torch.no_grad():
        model(torch.tensor([ids]))
        for hook in hooks:
            hook.remove()
        for number, (reach, state) in enumerate(zip((4, 2), states, strict=True)):
            module = layers[number].attention.self
            expected = softmax_in_windows(module, state, reach, list(range(n_global)))
            torch.testing.assert_close(result.attention_layer(number), expected, atol=1e-6, rtol=1e-5)


def test_texts_of_several_lengths_in_windows_equal_each_alone() -> None:
    model = windowed("QuestionAnswering")
    rows = [[0, 5, 6, 2, 2, 8, 9, 2], [0, 5, 2, 2, *range(20, 31), 2]]
    padded = torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=1)
    together = aw.trace(model, None, input_ids=padded, attention_mask=padded != 1)
    for row, result in zip(rows, together, strict=True):
        alone = trace(model, None, row)
        for layer in range(2):
            torch.testing.assert_close(
                result.attention_layer(layer), alone.attention_layer(layer), atol=1e-6, rtol=1e-5
            )


def test_an_encoder_that_attends_in_windows_has_maps_over_its_text() -> None:
    import transformers as hf

    options = tiny._seq2seq_options() | {"attention_window": 4, "max_encoder_position_embeddings": 64}
    model = tiny.build(lambda: hf.LEDForConditionalGeneration(hf.LEDConfig(**options)))
    result = trace(model, None, IDS)
    assert [len(axis) for axis in result.axes("encoder")] == [len(IDS)] * 2
    weights = result.attention_layer(0, "encoder")
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, len(IDS)))
    assert float(weights.triu(3).sum() + weights.tril(-3).sum()) == 0, "beyond the window"
    seen = torch.zeros(1, len(IDS), dtype=torch.long)
    seen[0, [0, 6]] = 1
    inputs = {"input_ids": torch.tensor([IDS]), "decoder_input_ids": torch.tensor([[0]])}
    with torch.no_grad():
        output = model(**inputs, global_attention_mask=seen, output_attentions=True)
    given = aw.from_attentions(output, query_tokens=["<s>"], key_tokens=list(map(str, IDS)))
    weights = given.attention_layer(0, "encoder")
    assert bool((weights[:, :, [0, 6]] > 0).all())
    assert bool((weights[:, [0, 6]] > 0).all())
    assert float(weights[:, 2, 5].sum()) == 0


def test_windows_whose_columns_are_not_clear_are_refused() -> None:
    from attnwidgets.tracing.attention_windows import over_tokens

    with pytest.raises(UnsupportedModelError, match=r"rows sum to 0\.5 to 1, not to one"):
        over_tokens([torch.full((1, 2, 6, 4), 0.25)], None)


@pytest.mark.parametrize("family", ["BERT", "RoBERTa", "GPT-2", "Llama", "ModernBERT"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_never_shows(family: str, side: str) -> None:
    model = tiny.build(tiny.TEXT[family])
    rows = [IDS, IDS[:4], IDS[2:8]]
    width = len(IDS)
    pads = [[0] * (width - len(row)) for row in rows]
    padded = [p + r if side == "left" else r + p for p, r in zip(pads, rows, strict=True)]
    mask = [
        [0] * len(p) + [1] * len(r) if side == "left" else [1] * len(r) + [0] * len(p)
        for p, r in zip(pads, rows, strict=True)
    ]
    result = trace(model, None, torch.tensor(padded), attention_mask=torch.tensor(mask))
    for row, item in zip(rows, result, strict=True):
        alone = trace(model, None, row)
        assert item.tokens == alone.tokens
        for layer in range(item.n_layers()):
            torch.testing.assert_close(
                item.attention_layer(layer), alone.attention_layer(layer), atol=1e-6, rtol=0
            )
        torch.testing.assert_close(item.logits, alone.logits, atol=1e-5, rtol=0)
