"""A trace's picture and sound travel within their budgets, in their formats."""

from __future__ import annotations

import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

import attnwidgets as aw
from attnwidgets.tracing.media.picture import Picture
from attnwidgets.tracing.media.sound import Sound
from attnwidgets.views.wire.media import PICTURE_BYTES, RATE, MediaModel, packed
from attnwidgets.views.wire.store import TileStore
from tests.tracing import tiny
from tests.tracing.test_frames import Bins


@pytest.fixture(scope="module")
def trace():
    return aw.trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 6, 7])


def with_media(trace, **media):
    from dataclasses import replace

    return replace(trace, **media)


def noise(rows, columns):
    return np.random.default_rng(1).integers(0, 256, (rows, columns, 3), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(3000, 4000), (700, 1000), (1, 1), (20, 3000)])
def test_any_picture_fits_its_budget(trace, shape):
    result, [data] = packed(with_media(trace, picture=Picture(None, noise(*shape))))
    assert len(data) <= PICTURE_BYTES
    image = Image.open(BytesIO(data))
    assert [image.height, image.width] == result["size"]
    assert max(result["size"]) <= 1024


def test_a_quiet_picture_keeps_its_size_and_its_pixels(trace):
    smooth = np.linspace(0, 255, 600)[:, None, None] * np.ones((600, 800, 3))
    result, [data] = packed(with_media(trace, picture=Picture(None, smooth.astype(np.uint8))))
    assert result["size"] == [600, 800]
    off = np.asarray(Image.open(BytesIO(data))).astype(float) - smooth
    assert np.abs(off).max() < 6


def test_a_patch_is_found_in_the_picture_that_is_sent(trace):
    picture = Picture(np.zeros((224, 224, 3), np.uint8), noise(3000, 4000), (10.0, 12.0), (100.0, 200.0))
    result, _ = packed(with_media(trace, picture=picture))
    smaller = result["size"][0] / 3000
    top, left, _, _ = picture.box(2, 3, (16, 16))
    sent = [
        shift + scale * 14 * n
        for shift, scale, n in zip(result["shift"], result["scale"], (2, 3), strict=True)
    ]
    assert sent == pytest.approx([top * smaller, left * smaller], rel=2e-3)


def test_sound_travels_as_heard(trace):
    wave = np.sin(np.arange(48_000 * 3) / 50).astype(np.float32)
    result, [samples, spectrogram] = packed(with_media(trace, sound=Sound(wave, 48_000, 2.0)))
    assert (result["rate"], result["heard"], result["spectrogram"], spectrogram) == (RATE, 2.0, None, b"")
    assert len(samples) == 2 * RATE * 2  # 32 kB a second
    heard = np.frombuffer(samples, "<i2")[100:-100] / 32767
    assert np.abs(heard - wave[: 2 * 48_000 : 3][100:-100]).max() < 0.01


def test_the_spectrogram_travels_as_far_as_the_sound():
    wave = np.random.default_rng(1).normal(size=9_000).astype(np.float32)
    result, [samples, spectrogram] = packed(aw.trace(tiny.whisper(), Bins(first=True), audio=wave))
    assert result["spectrogram"] == {"bins": 8, "frames": 23, "step": 0.025}
    assert len(samples) == 2 * 9_000
    lines = np.frombuffer(spectrogram, np.uint8).reshape(8, 23)
    power = np.pad(wave, (0, 200)).reshape(23, 400).mean(1)
    assert np.corrcoef(lines[0], power)[0, 1] > 0.999


def test_media_have_the_fields_of_wire(root, trace):
    wire = (root / "js" / "src" / "wire" / "mediaState.ts").read_text(encoding="utf-8")
    media = {
        "Picture": {"picture": Picture(noise(4, 4))},
        "Sound": {"sound": Sound(np.zeros(9, np.float32), 9, 1.0)},
    }
    for name, given in media.items():
        body = re.search(rf"interface {name}Media {{(.*?)\n}}", wire, re.DOTALL)[1]
        fields = re.findall(r"^  (\w+):", body, re.MULTILINE)
        assert sorted(packed(with_media(trace, **given))[0]) == sorted(fields)
    assert packed(trace) == (None, [])


def test_a_picture_is_sent_once_whatever_shows_it(trace):
    pixels = noise(20, 20)
    same = [with_media(trace, picture=Picture(pixels), id=name) for name in ("one", "other")]
    stores = [TileStore() for _ in same]
    for store, source in zip(stores, same, strict=True):
        store.acquire("a view")
        assert store.media is None  # nothing is sent before a view asks
        for _ in range(2):
            store.show_media(source)
    first, second = (store.media for store in stores)
    assert first is second
    [data] = packed(same[0])[1]
    assert (first.data, first.lengths) == (data, [len(data)])
    other = with_media(trace, picture=Picture(noise(21, 20)))
    assert MediaModel.of(other) is not first
    stores[0].release("a view")
    assert first.is_open
    stores[1].release("a view")
    assert not first.is_open


def test_a_text_has_no_media(trace):
    store = TileStore()
    store.show_media(trace)
    assert store.media is None
