"""Where its definitions are ours, Quantus' recorded numbers are ours: `against_quantus.py` wrote them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.evaluate import entropy, faithfulness, features_above, gini, single_removals, stability
from attnwidgets.explanations import Attributions
from tests.evaluate.against_quantus import EPSILON, IDS, LABEL, SCORES, THRESHOLD, classifier, slopes
from tests.tracing import tiny


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(SCORES.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trace() -> Any:
    return aw.trace(classifier(), tiny.wordpiece(), input_ids=IDS)


@pytest.fixture(scope="module")
def vectors(recorded: Any) -> Any:
    return np.array(recorded["vectors"])


def given(trace: Any, values: Any) -> Attributions:
    return Attributions(values, axis=trace.axes()[0], stack="self", dtype="float64")


def test_sizes_of_explanations_are_as_simple(recorded: Any, vectors: Any) -> None:
    scores = {name: np.ravel(numbers) for name, numbers in recorded["scores"].items()}
    np.testing.assert_allclose([entropy(vector) for vector in vectors], scores["entropy"], atol=1e-9)
    # Quantus adds 1e-7 to every value.
    np.testing.assert_allclose([gini(vector) for vector in vectors], scores["gini"], atol=1e-6)
    assert [features_above(vector, THRESHOLD) for vector in vectors] == scores["features_above"].tolist()


def test_single_removals_and_deletion_are_the_same(recorded: Any, vectors: Any, trace: Any) -> None:
    # Quantus divides by the largest, and takes magnitudes.
    sizes = {str(at): given(trace, abs(vector) / abs(vector).max()) for at, vector in enumerate(vectors)}
    card = single_removals(
        trace,
        sizes,
        LABEL,
        removal=aw.evaluate.Removal("mask", special=True),
        metrics=("monotonicity", "non_sensitivity"),
        epsilon=EPSILON,
        change=EPSILON,
    )
    signed = {str(at): given(trace, vector) for at, vector in enumerate(vectors)}
    shares = np.arange(1, len(IDS) + 1) / len(IDS)
    curves = faithfulness(
        trace,
        signed,
        LABEL,
        removal=aw.evaluate.Removal("mask", thresholds=shares, special=True),
        metrics="deletion",
    )
    for at in range(len(vectors)):
        for index, name in enumerate(card.metrics):
            ours = card.of(str(at))[0, index, 0]
            assert ours == pytest.approx(recorded["scores"][name][at][0], abs=1e-6), name
        if len(set(vectors[at])) == len(IDS):  # equal values are not ordered
            np.testing.assert_allclose(
                curves.of(str(at))[0, 0], recorded["scores"]["deletion"][at], atol=1e-6
            )
    assert len({item[0] for item in recorded["scores"]["non_sensitivity"]}) > 1


def test_sensitivities_to_the_same_noise_are_the_same(recorded: Any, trace: Any) -> None:
    table = trace.model.get_input_embeddings()

    def gradient(trace: Any) -> Any:
        def logits(embedded: Any) -> Any:
            return trace.model(inputs_embeds=embedded).logits

        return slopes(logits, [table(trace.inputs["input_ids"])[0].detach()], [LABEL])

    card = stability(trace, {"gradient": gradient}, LABEL, noise=np.array(recorded["noise"]))
    for index, name in enumerate(card.metrics):
        assert card.of("gradient")[0, index, 0] == pytest.approx(recorded["scores"][name][0], rel=1e-6), name
