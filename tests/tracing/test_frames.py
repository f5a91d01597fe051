"""Frames of a sound are named after the time at which they hear it; padding is named as such."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.axes import prefixed
from tests.tracing import tiny
from tests.tracing.test_media import processor
from tests.tracing.tiny import SMALL, VOCAB

if TYPE_CHECKING:
    from collections.abc import Callable

RATE = 16_000
_CONV = {"conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
_POSITIONS = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer"}


def _of_samples(name: str, **options: Any) -> Any:
    return getattr(hf, f"{name}Model")(
        getattr(hf, f"{name}Config")(**{**SMALL, **_CONV, **_POSITIONS, **options})
    )


def _moonshine() -> Any:
    sides = {
        f"{side}_{part}": 2
        for side in ("encoder", "decoder")
        for part in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    }
    return hf.MoonshineForConditionalGeneration(
        hf.MoonshineConfig(
            vocab_size=VOCAB, hidden_size=32, intermediate_size=37, max_position_embeddings=100, **sides
        )
    )


def _speech_to_text() -> Any:
    sides = {
        f"{side}_{part}": value
        for side in ("encoder", "decoder")
        for part, value in {"layers": 2, "attention_heads": 4, "ffn_dim": 37}.items()
    }
    return hf.Speech2TextForConditionalGeneration(
        hf.Speech2TextConfig(
            vocab_size=VOCAB,
            d_model=32,
            conv_channels=16,
            input_feat_per_channel=8,
            num_conv_layers=2,
            conv_kernel_sizes=(3, 3),
            pad_token_id=0,
            **sides,
        )
    )


WAVES = {
    name: lambda name=name: _of_samples(name)
    for name in ("Wav2Vec2", "Hubert", "WavLM", "UniSpeech", "UniSpeechSat", "Wav2Vec2Conformer")
} | {
    "Data2VecAudio": lambda: _of_samples("Data2VecAudio", conv_pos_kernel_size=3, num_conv_pos_embeddings=1),
    "SEW": lambda: _of_samples("SEW", squeeze_factor=2),
    "SEWD": lambda: _of_samples("SEWD", squeeze_factor=2, max_position_embeddings=16, position_buckets=8),
}


def noise(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def states(model: Any, wave: torch.Tensor) -> torch.Tensor:
    """Return the inputs of the first layer, [frame, number]."""
    layers = next(
        module
        for module in model.modules()
        if isinstance(module, torch.nn.ModuleList) and _is_layer(module[0])
    )
    inputs: list[torch.Tensor] = []
    hook = layers[0].register_forward_pre_hook(lambda _, given: inputs.append(given[0][0]))
    with torch.no_grad():
        model(input_values=wave[None])
    hook.remove()
    return inputs[0]


def _is_layer(module: Any) -> bool:
    return any("att" in name for name, _ in module.named_children())


def without_neighbours(model: Any) -> Any:
    """Return the model without its convolution over frames, in which positions are learned."""
    for name, weights in model.named_parameters():
        if "pos_conv" in name and not name.endswith("original1"):  # a direction, whose length is free
            weights.data.zero_()
    return model


@pytest.mark.parametrize("family", WAVES)
def test_a_frame_hears_its_own_time_and_nothing_else(family: str) -> None:
    model = without_neighbours(tiny.build(WAVES[family]))
    wave = noise(200)
    before = trace(model, None, audio=wave, sampling_rate=RATE)
    frames = before.units["frame"]
    assert not any(frames.special)
    bounds = [(round(begin * RATE), round(end * RATE)) for begin, end in frames.times]
    assert frames.labels == tuple(f"{begin / RATE:.2f}s" for begin, _ in bounds)
    assert bounds[-1][1] <= len(wave)
    for sample in range(1, len(wave), 17):
        changed = wave.clone()
        changed[sample] += 5
        differs = (states(model, changed) - states(model, wave)).abs().amax(dim=1) > 1e-6
        hears = [begin <= sample < end for begin, end in bounds]
        assert differs.tolist() == hears


def test_a_frame_of_moonshine_hears_its_own_time() -> None:
    model = tiny.build(_moonshine)
    wave = noise(384 * 12)
    before = trace(model, None, audio=wave, sampling_rate=RATE)
    frames = before.axes("encoder")[0].units["frame"]
    assert frames.times[1] == (pytest.approx(0.024), pytest.approx(0.024 + 895 / RATE))
    for sample in range(100, len(wave), 300):
        changed = wave.clone()
        changed[sample - 4 : sample + 4] += 9
        after = trace(model, None, audio=changed, sampling_rate=RATE)
        differs = (after.query_key(0)[0] - before.query_key(0)[0]).norm(dim=(0, 2)) > 0.03
        # Its norm reads the whole sound: others change a little.
        assert differs.tolist() == [
            round(begin * RATE) <= sample < round(end * RATE) for begin, end in frames.times
        ]


class Bins:
    """A feature extractor whose spectrogram is the samples' mean power, in 8 bins, every 400 samples."""

    sampling_rate, hop_length, chunk_length = RATE, 400, 1

    def __init__(self, first: bool) -> None:
        self.first = first

    def __call__(self, wave: np.ndarray, **_: Any) -> dict[str, torch.Tensor]:
        padded = np.zeros(RATE, dtype=np.float32)
        padded[: len(wave)] = wave[:RATE]
        power = torch.tensor(padded.reshape(40, 400).mean(1)).repeat(8, 1)
        return {"input_features": power[None] if self.first else power.T[None]}


@pytest.mark.parametrize("family", ["Whisper", "Speech2Text"])
def test_a_frame_of_a_spectrogram_hears_its_own_time(family: str) -> None:
    model = tiny.whisper() if family == "Whisper" else tiny.build(_speech_to_text)
    reader = Bins(first=family == "Whisper")
    wave = np.zeros(9_000, dtype=np.float32)
    before = trace(model, reader, audio=wave)
    frames = before.axes("encoder")[0].units["frame"]
    step = 800 if family == "Whisper" else 1_600
    assert frames.times[1] == (pytest.approx(step / RATE), pytest.approx(2 * step / RATE))
    heard = -(-9_000 // step)
    assert frames.special == (False,) * heard + (True,) * (len(frames) - heard)
    assert set(frames.labels[heard:]) == {"[PAD]"}
    for index in range(1, heard - 1):
        changed = wave.copy()
        changed[index * step : index * step + 400] = 9
        after = trace(model, reader, audio=changed)
        differs = (after.query_key(0, "encoder")[0] - before.query_key(0, "encoder")[0]).norm(dim=(0, 2))
        assert int(differs.argmax()) == index


def test_padding_stands_apart_from_every_map() -> None:
    result = trace(tiny.whisper(), Bins(first=True), audio=noise(9_000))
    for stack in ("encoder", "cross"):
        unit = aw.attention(result, stack=stack).key.units["frame"]
        assert sum(unit.special) == 20 - 12
    header = aw.Heatmap(aw.attention(result, stack="encoder")).store.header
    assert any(sum(axis["special"]) == 20 - 12 for axis in header["axes"].values())


def test_a_family_of_unknown_frames_gives_numbers_and_says_so() -> None:
    model = tiny.wav2vec2()
    model.config.model_type = "wav2vec9"
    result = trace(model, None, audio=noise(200))
    assert result.tokens[:2] == ("0", "1")
    assert "numbered: when they are in the sound is not known for 'wav2vec9'" in result.warning


def test_a_prefix_of_an_adapter_keeps_times() -> None:
    axis = trace(tiny.wav2vec2(), None, audio=noise(200)).axes()[0]
    times = axis.units["frame"].times
    assert prefixed(axis, 1).units["frame"].times == (None, *times)


def test_what_the_model_did_not_hear_is_said() -> None:
    result = trace(tiny.whisper(), Bins(first=True), audio=noise(30_000))
    assert result.warning == "sound cut from 1.9 to 1 seconds"
    assert not any(result.axes("encoder")[0].units["frame"].special)


@pytest.mark.parametrize(
    ("audio", "rate", "says"),
    [
        (torch.zeros(0), None, "audio is empty"),
        (torch.zeros(2, 9_000), None, r"one channel of samples \[time\], not \(2, 9000\).*audio.mean"),
        (torch.zeros(9_000, dtype=torch.int16), None, "floats between -1 and 1, not torch.int16.*32768"),
        (torch.tensor([0.0, float("nan"), 1.0]), None, r"audio\[1\] is nan"),
        (
            torch.zeros(9_000),
            8_000,
            r"at 8,000 Hz.*16,000 Hz.*resample_poly\(audio, 2, 1\), sampling_rate=16000",
        ),
        (torch.zeros(9_000), -1, "sampling_rate must be above 0"),
    ],
)
def test_sound_that_cannot_be_read_is_refused_in_words(
    audio: torch.Tensor, rate: int | None, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        trace(tiny.whisper(), Bins(first=True), audio=audio, sampling_rate=rate)


def test_a_sound_shorter_than_a_frame_is_refused_in_words() -> None:
    with pytest.raises(
        ValueError, match=r"audio has 15 samples .* one frame of the model reads 20 \(0.001 s\)"
    ):
        trace(tiny.wav2vec2(), None, audio=noise(15))


def test_half_an_hour_is_cut_to_what_the_model_reads_and_that_is_said() -> None:
    result = trace(tiny.whisper(), Bins(first=True), audio=torch.zeros(1_800 * 16_000))
    assert result.warning == "sound cut from 1,800.0 to 1 seconds"
    assert result.sound.seconds == 1_800
    assert result.sound.heard == 1


@pytest.mark.parametrize(
    ("reader", "says"),
    [
        (
            hf.Wav2Vec2FeatureExtractor,
            r"reads input_features, and Wav2Vec2FeatureExtractor makes input_values",
        ),
        (
            lambda: hf.WhisperFeatureExtractor(feature_size=128, chunk_length=1),
            r"reads 8 bands, .* makes 128\. Pass",
        ),
        (
            lambda: processor("ViTImageProcessor"),
            r"audio needs a processor of sound, and ViTImageProcessor\w* reads pict",
        ),
    ],
)
def test_a_processor_of_another_model_is_refused_in_words(reader: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trace(tiny.whisper(), reader(), audio=noise(9_000))


def test_a_processor_of_sound_and_text_reads_no_picture() -> None:
    reader = SimpleNamespace(feature_extractor=hf.WhisperFeatureExtractor(), tokenizer=None)
    with pytest.raises(
        ValueError, match="image needs a processor of pictures, and SimpleNamespace reads sound"
    ):
        trace(tiny.whisper(), reader, image=np.zeros((20, 20, 3), np.uint8))
