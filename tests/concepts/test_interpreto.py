"""Directions beside those of Interpreto, another library of concepts, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.concepts.directions_of_sets import LayerStates

theirs: Any = pytest.importorskip(
    "interpreto.concepts", reason="Interpreto is not installed, or not with this torch", exc_type=ImportError
)
COUNT = 5


@pytest.fixture(scope="module")
def states() -> Any:
    texts = [each.text for each in aw.demo_texts("train")[:60]]
    return aw.concepts.states(*aw.demo_model("classifier"), texts, layers=[3])


def fitted(explainer: Any, values: np.ndarray) -> Any:
    made = explainer.concept_model_class.fget(explainer)(nb_concepts=COUNT, input_size=values.shape[1])
    made.fit(torch.tensor(values))
    return made


def test_principal_components_and_their_activations_are_the_same(states) -> None:
    values = states.layer(3)
    model = fitted(theirs.PCAConcepts, values)
    ours = aw.concepts.directions(states, COUNT, method="pca")
    active = ours.encode(torch.tensor(values)).numpy()
    signed = active[:, :COUNT] - active[:, COUNT:]
    cosines = (ours.directions[:COUNT] * model.get_dictionary().detach().float()).sum(1)
    np.testing.assert_allclose(abs(cosines.numpy()), 1, atol=1e-4)
    expected = model.encode(torch.tensor(values)).detach().numpy() * np.sign(cosines.numpy())
    np.testing.assert_allclose(signed, expected, atol=1e-3)


def test_the_difference_of_means_is_the_same_direction(states) -> None:
    values = states.layer(3)
    shows = torch.arange(len(values)) % 3 == 0
    probe = theirs.MeansDiffProbe()
    probe.fit(torch.tensor(values), shows[:, None].float())
    layer = LayerStates(values, values[:4], "mean_difference", 1.0)
    ((rows, alpha, _),) = layer.fit([tuple(np.flatnonzero(side) for side in (shows, ~shows))])
    direction = layer.direction(rows, alpha)
    weight = probe.weight.detach().numpy()[:, 0]
    assert direction @ weight / np.linalg.norm(weight) == pytest.approx(1, abs=1e-5)
