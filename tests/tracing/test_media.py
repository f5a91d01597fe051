"""A trace keeps the picture or the sound that was given, and the model's view of it."""

from __future__ import annotations

import copy
import pickle
import wave
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image

from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

SIDE, GRID = 32, (4, 4)


def processor(kind: str, **options: Any) -> Any:
    """Return a processor of transformers that works without torchvision."""
    return (getattr(hf, f"{kind}Pil", None) or getattr(hf, kind))(**options)


# By their treatment of a picture that is wider than high.
PROCESSORS = {
    "stretched": lambda: processor("ViTImageProcessor", size={"height": SIDE, "width": SIDE}),
    "cut": lambda: processor(
        "BitImageProcessor", size={"shortest_edge": 40}, crop_size={"height": SIDE, "width": SIDE}
    ),
    "cut to a part": lambda: processor(
        "CLIPImageProcessor", size={"shortest_edge": 64}, crop_size={"height": SIDE, "width": SIDE}
    ),
    "padded": lambda: processor(
        "BitImageProcessor", size={"shortest_edge": 16}, crop_size={"height": SIDE, "width": SIDE}
    ),
}


@pytest.fixture(scope="module")
def vit() -> Any:
    options = {**tiny.SMALL, "image_size": SIDE, "patch_size": SIDE // GRID[0]}
    return tiny.build(lambda: hf.ViTModel(hf.ViTConfig(**options)))


def noise(rows: int, columns: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (rows, columns, channels), dtype=np.uint8)


def picture_of(read: Any, image: np.ndarray) -> Any:
    """Return the stored picture of a trace of a model for 224 x 224 pixels."""
    options = {**tiny.SMALL, "image_size": 224, "patch_size": 56}
    return trace(tiny.build(lambda: hf.ViTModel(hf.ViTConfig(**options))), read, image=image).picture


@pytest.mark.parametrize("how", PROCESSORS)
def test_a_patch_is_where_its_box_is_in_the_picture_that_was_given(vit: Any, how: str) -> None:
    read = PROCESSORS[how]()
    image = np.full((120, 200, 3), 90, np.uint8)
    result = trace(vit, read, image=image)
    unit = result.units["patch"]
    plain = result.query_key(0)[0]
    rows, columns = image.shape[:2]
    looked = 0
    for index, cell in enumerate(unit.cells):
        if cell is None:
            continue
        box = result.picture.box(*divmod(cell, GRID[1]), unit.grid)
        top, left, bottom, right = (round(number) for number in box)
        if top < 0 or left < 0 or bottom > rows or right > columns:
            assert how == "padded"
            continue
        painted = image.copy()
        painted[top:bottom, left:right] = (250, 10, 240)
        changes = (trace(vit, read, image=painted).query_key(0)[0] - plain).norm(dim=(0, 2))
        assert int(changes.argmax()) == index
        looked += 1
    assert looked == (4 if how == "padded" else 16)


@pytest.mark.slow
def test_the_transform_is_that_of_the_options(vit: Any) -> None:
    result = trace(vit, PROCESSORS["cut"](), image=noise(300, 500)).picture
    # 300 x 500 becomes 40 x 66 (66.7, cut off), of which the middle 32 x 32 is left.
    assert result.scale == pytest.approx((300 / 40, 500 / 66), rel=0.01)
    assert result.shift == pytest.approx((4 * 300 / 40, 17 * 500 / 66), abs=1.5)
    large = trace(vit, PROCESSORS["stretched"](), image=noise(3000, 4000)).picture
    assert large.scale == pytest.approx((3000 / SIDE, 4000 / SIDE), rel=0.001)
    assert large.shift == pytest.approx((0, 0), abs=0.1 * 4000 / SIDE)
    # As many steps of 8-bit numbers as pixels: 256 of 3,000 rows, of which the middle 224 are left.
    sides = {"height": 224, "width": 224}
    steps = processor("BitImageProcessor", size={"shortest_edge": 256}, crop_size=sides)
    picture = picture_of(steps, noise(3000, 4000))
    assert picture.scale == pytest.approx((3000 / 256, 4000 / 341), rel=5e-4)
    assert picture.shift == pytest.approx((16 * 3000 / 256, 58 * 4000 / 341), abs=0.15 * 12)


def test_the_picture_is_kept_as_given_and_as_seen(vit: Any) -> None:
    image = noise(SIDE, SIDE)
    result = trace(vit, PROCESSORS["stretched"](), image=Image.fromarray(image))
    np.testing.assert_array_equal(result.picture.given, image)
    np.testing.assert_array_equal(result.picture.seen, image)  # it has the right size
    assert result.picture.scale == pytest.approx((1, 1), abs=0.01)
    assert repr(result.picture) == "<Picture of 32 x 32 pixels given, 32 x 32 pixels seen>"
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), result.rerun()):
        np.testing.assert_array_equal(again.picture.given, image)
    assert result.sound is None


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image,
        lambda image: image.transpose(2, 0, 1),
        lambda image: torch.from_numpy(image.copy()),
        lambda image: image / 255,
        lambda image: Image.fromarray(np.dstack([image, np.full(image.shape[:2], 255, np.uint8)])),
    ],
    ids=["array", "channels first", "tensor", "floats", "opaque"],
)
def test_a_picture_may_come_in_any_form(vit: Any, change: Any) -> None:
    image = noise(50, 70)
    result = trace(vit, PROCESSORS["cut"](), image=change(image))
    expected = trace(vit, PROCESSORS["cut"](), image=Image.fromarray(image))
    assert torch.equal(result.inputs["pixel_values"], expected.inputs["pixel_values"])
    np.testing.assert_array_equal(result.picture.given, image)
    assert not result.warning


def test_what_is_transparent_is_white_and_said_to_be(vit: Any) -> None:
    image = np.zeros((SIDE, SIDE, 4), np.uint8)
    image[:8, :, 3] = 255
    result = trace(vit, PROCESSORS["stretched"](), image=Image.fromarray(image))
    assert "transparent" in result.warning
    assert result.picture.seen[:8].max() == 0
    assert result.picture.seen[8:].min() == 255


def test_pictures_without_colour_and_of_one_pixel_are_read(vit: Any) -> None:
    grey = trace(vit, PROCESSORS["stretched"](), image=noise(SIDE, SIDE)[..., 0])
    assert np.ptp(grey.picture.seen, axis=-1).max() == 0
    point = trace(vit, PROCESSORS["stretched"](), image=np.full((1, 1, 3), 200, np.uint8))
    assert set(point.picture.seen.flatten()) == {200}


def test_pixels_that_are_no_numbers_are_refused(vit: Any) -> None:
    with pytest.raises(ValueError, match="image holds NaN"):
        trace(vit, PROCESSORS["stretched"](), image=np.full((4, 4, 3), np.nan))
    with pytest.raises(ValueError, match="image has no pixels"):
        trace(vit, PROCESSORS["stretched"](), image=np.zeros((0, 4, 3), np.uint8))
    with pytest.raises(ValueError, match="image holds NaN"):
        trace(vit, None, image=torch.full((3, SIDE, SIDE), float("nan")))


def test_a_given_input_is_seen_from_its_least_to_its_largest_number(vit: Any) -> None:
    pixels = torch.linspace(-2, 2, SIDE).expand(3, SIDE, SIDE)
    result = trace(vit, None, image=pixels).picture
    assert result.given is None
    assert result.seen[0, :, 0].tolist() == sorted(result.seen[0, :, 0].tolist())
    assert (result.seen.min(), result.seen.max()) == (0, 255)
    assert result.box(1, 2, GRID) == (8, 16, 16, 24)


def test_the_sound_is_kept_as_given() -> None:
    wave = np.sin(np.arange(800) / 9).astype(np.float32)
    result = trace(tiny.wav2vec2(), None, audio=wave, sampling_rate=8_000)
    np.testing.assert_array_equal(result.sound.wave, wave)
    assert (result.sound.rate, result.sound.seconds, result.sound.heard) == (8_000, 0.1, 0.1)
    assert repr(result.sound) == "<Sound of 0.10 s at 8,000 Hz>"
    assert result.picture is None


def write_wav(path: Any, samples: np.ndarray, rate: int) -> Any:
    """Write 16-bit samples [time] or [time, channel]."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32_768).astype("<i2").tobytes())
    return path


def test_sound_is_taken_as_people_hold_it(tmp_path: Any) -> None:
    model, reader = tiny.wav2vec2(), hf.Wav2Vec2FeatureExtractor(sampling_rate=8_000)
    samples = np.round(np.sin(np.arange(800) / 9) * 16_384) / 32_768
    samples = samples.astype(np.float32)
    path = write_wav(tmp_path / "a.wav", samples, 8_000)
    decoded = SimpleNamespace(data=torch.tensor(samples)[None], sample_rate=8_000)
    forms: dict[str, Any] = {
        "samples": samples,
        "by channel": samples[None],
        "an entry": {"array": samples, "sampling_rate": 8_000, "path": None},
        "a pipeline's": {"raw": samples, "sampling_rate": 8_000},
        "a decoder": SimpleNamespace(get_all_samples=lambda: decoded),
        "a path": path,
        "its name": str(path),
    }
    for form, audio in forms.items():
        sound = trace(model, reader, audio=audio).sound
        np.testing.assert_allclose(sound.wave, samples, atol=1e-6, err_msg=form)
        assert sound.rate == 8_000, form


def test_sound_that_cannot_be_read_is_said_in_words(tmp_path: Any) -> None:
    model, reader = tiny.wav2vec2(), hf.Wav2Vec2FeatureExtractor(sampling_rate=8_000)
    samples = np.zeros(800, dtype=np.float32)
    (tmp_path / "text.wav").write_text("no sound")
    stereo = write_wav(tmp_path / "b.wav", np.zeros((800, 2)), 8_000)
    bad: list[tuple[Any, dict[str, Any], str]] = [
        (tmp_path / "none.wav", {}, "none.wav' cannot be read: No such file"),
        (tmp_path / "text.wav", {}, "holds no sound that can be read"),
        (stereo, {}, r"one channel of samples \[time\], not \(2, 800\)"),
        ({"sampling_rate": 8_000}, {}, "one of a data set has 'array' and 'sampling_rate'"),
        ({"array": samples, "sampling_rate": 8_000}, {"sampling_rate": 16_000}, "says 16,000: leave it out"),
        ({"array": samples, "sampling_rate": 16_000}, {}, "audio is at 16,000 Hz, and .* reads 8,000 Hz"),
    ]
    for audio, options, says in bad:
        with pytest.raises(ValueError, match=says):
            trace(model, reader, audio=audio, **options)
