"""Pictures that are large, transparent, a single pixel, NaN, or read by another model's processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.test_media import processor
from tests.vision.pictures import of_family, vit

READER = processor("ViTImageProcessor", size={"height": 32, "width": 32})
MODELS = {"ViT": vit, "ResNet": lambda: of_family("ResNet")}


@pytest.fixture(scope="module", params=MODELS)
def model(request: Any) -> Any:
    return MODELS[request.param]()


def given(rows: int, columns: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, columns, channels), dtype=np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(3000, 4000), (1, 1)])
def test_of_any_size_the_map_is_that_of_what_the_model_saw(model: Any, size: tuple[int, int]) -> None:
    trace = aw.trace(model, READER, image=Image.fromarray(given(*size)))
    assert trace.picture.given.shape == (*size, 3)
    assert trace.picture.seen.shape == (32, 32, 3)
    again = aw.trace(model, None, image=trace.inputs["pixel_values"][0])
    result, expected = (aw.vision.grad_cam(each, 0).values for each in (trace, again))
    assert np.isfinite(result).all()
    assert np.array_equal(result, expected)


def test_what_is_transparent_is_white_and_said(model: Any) -> None:
    pixels = given(32, 32, 4)
    pixels[:16, :, 3] = 0
    trace = aw.trace(model, READER, image=Image.fromarray(pixels, "RGBA"))
    assert (trace.picture.seen[:15] >= 250).all()
    assert "transparent" in aw.vision.grad_cam(trace, 0).warning


def test_nan_is_refused(model: Any) -> None:
    for image, reader in ((np.full((20, 20, 3), np.nan), READER), (torch.full((3, 32, 32), torch.nan), None)):
        with pytest.raises(ValueError, match="image holds NaN"):
            aw.trace(model, reader, image=image)


def test_what_a_model_cannot_read_is_said_in_words_of_a_picture(model: Any) -> None:
    with pytest.raises(
        ValueError, match=r"cannot read this picture of 32 x 32 pixels and 1 channels: .* processor"
    ):
        aw.trace(model, None, image=torch.rand(1, 32, 32))
    with pytest.raises(ValueError, match=r"image needs a processor, and .* reads text only"):
        aw.trace(model, tiny.wordpiece(), image=given(32, 32))
    with pytest.raises(ValueError, match=r"image needs a processor of pictures, and .* reads sound"):
        aw.trace(model, hf.WhisperFeatureExtractor(), image=given(32, 32))


def test_a_processor_of_another_model_is_told_by_the_size() -> None:
    other = processor("ViTImageProcessor", size={"height": 64, "width": 64})
    says = r"cannot read this picture of 64 x 64 pixels and 3 channels: .*the processor that was saved"
    with pytest.raises(ValueError, match=says):
        aw.trace(vit(), other, image=given(40, 40))
    # A convolutional model reads any size; its map has as many cells more.
    assert aw.trace(of_family("ResNet"), other, image=given(40, 40)).units["patch"].grid == (8, 8)


def test_a_single_pixel_without_a_processor_has_no_map() -> None:
    with pytest.raises(
        UnsupportedModelError, match="nor a feature map with several places, of this picture of 1 x 1"
    ):
        aw.trace(of_family("ResNet"), None, image=torch.rand(3, 1, 1))
    with pytest.raises(ValueError, match="cannot read this picture of 1 x 1 pixels"):
        aw.trace(vit(), None, image=torch.rand(3, 1, 1))


def test_a_module_that_is_no_classifier_of_pictures_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"must return logits \[batch, class\] for pixels, not \(1, 4, 30, 30\)"
    ):
        aw.trace(torch.nn.Conv2d(3, 4, 3), None, image=torch.rand(3, 32, 32))
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 3))
    with pytest.raises(UnsupportedModelError, match="nor a feature map"):
        aw.trace(flat, None, image=torch.rand(3, 8, 8))


def test_a_path_is_the_picture_in_that_file_turned_as_it_was_held(model: Any, tmp_path: Any) -> None:
    pixels = given(20, 30)
    tags = Image.Exif()
    tags[0x0112] = 6  # turned by a quarter
    Image.fromarray(pixels).save(tmp_path / "picture.png", exif=tags)
    trace = aw.trace(model, READER, image=tmp_path / "picture.png")
    assert np.array_equal(trace.picture.given, np.rot90(pixels, -1))
    (tmp_path / "text.png").write_text("no picture")
    for name, says in (("text.png", "holds no picture"), ("absent.png", "cannot be read: No such file")):
        with pytest.raises(ValueError, match=rf"image='.*{name}' .*{says}"):
            aw.trace(model, READER, image=str(tmp_path / name))


def test_several_pictures_and_a_text_for_a_model_of_pictures_are_refused_with_what_to_do(model: Any) -> None:
    with pytest.raises(ValueError, match=r"image must be one picture, not 2; a trace of each is \[aw.trace"):
        aw.trace(model, READER, image=[given(20, 30), given(20, 30)])
    with pytest.raises(ValueError, match=r"ViTImageProcessor.* reads pictures: give aw.trace"):
        aw.trace(model, READER, "a cat")
