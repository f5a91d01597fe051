"""The language model inside a model of pictures: lens, DecompX, component relevance and patching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.zoo.scenes import Scene
from tests.tracing.picture_families import FAMILIES, traced
from tests.tracing.torchvision_families import TORCHVISION_FAMILIES

CELL = "1,2"  # of the circle of scene 7


@pytest.fixture(scope="module")
def pair() -> Any:
    """Traces of scene 7, whose circle is red, and of the same with a blue circle, up to the colour."""
    model, processor = aw.zoo.trained("scenes")
    scene = model.truth.scene(7)
    blue = Scene({**scene.shapes, "circle": (scene.shapes["circle"][0], "blue")}, "circle")
    text = f"{scene.text} the circle is"
    return [aw.trace(model, processor, text, image=picture.image) for picture in (scene, blue)]


def test_the_logit_of_a_colour_is_that_of_the_token_of_its_cell(pair: Any) -> None:
    clean, _ = pair
    red = clean.logits[-1, clean.tokenizer.tokenizer.convert_tokens_to_ids("red")].item()
    shares = aw.decompx(clean, "red")
    assert np.sum(shares.values) == pytest.approx(red, abs=1e-3)
    assert clean.tokens[int(np.argmax(shares.values))] == CELL
    assert shares.value(CELL) > 0.9 * red
    relevance = aw.circuits.component_relevance(clean, "red")
    assert "head 1.0 +17.03" in repr(relevance)
    parts = aw.direct_logit_attribution(clean, "red")
    assert np.sum(parts.values) == pytest.approx(red, abs=1e-3)


def test_the_lens_ends_in_what_the_model_says(pair: Any) -> None:
    clean, _ = pair
    lens = aw.circuits.lens(clean, "red")
    assert lens.rank[-1, -1] == 0
    expected = clean.logits[-1].softmax(-1).max().item()
    assert lens.probability[-1, -1] == pytest.approx(expected, abs=1e-5)


def test_patching_follows_the_colour_from_its_cell_to_the_last_word(pair: Any) -> None:
    clean, corrupt = pair
    patched = aw.circuits.patch(clean, corrupt, "red", foil="blue")
    cell, last = clean.tokens.index(CELL), len(clean.tokens) - 1
    assert patched.differs == (cell,)
    gap = patched.clean - patched.corrupt
    for layer in (0, 1):
        shares = patched.raw["state"][layer] / gap
        assert shares[cell] > 0.98
        assert np.abs(np.delete(shares, cell)).max() < 0.02
    assert patched.raw["attention"][1, last] / gap > 0.98
    tower = aw.circuits.patch(clean, corrupt, "red", foil="blue", stack="vision", sites="state")
    assert tower.raw["state"][0].argmax() == cell
    view = patched.view()
    assert view.options["claims"] is False
    args = {"of": "claim", "layer": 1, "head": 0}
    with pytest.raises(LookupError, match="these traces are of a picture or a sound"):
        view.requests.answer("expression", args)


@pytest.mark.parametrize("name", ["Idefics 3", "Qwen2-VL", "Llama 4"])
def test_families_name_their_norm_and_head_in_other_places(name: str) -> None:
    family = (FAMILIES | TORCHVISION_FAMILIES)[name]
    picture = np.random.default_rng(0).integers(0, 255, (*family.size, 3)).astype(np.uint8)
    trace = traced(family.model(), family.processor(), picture)
    shares = aw.decompx(trace)
    assert np.sum(shares.values) == pytest.approx(trace.logits[-1].max().item(), abs=1e-3)
