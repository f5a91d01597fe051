"""Models that accelerate keeps on a disk: the same numbers, from every method, or a true reason why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.explanations.registry.registry import methods
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

accelerate = pytest.importorskip("accelerate")
IDS = [5, 17, 31, 9]


@pytest.fixture(scope="module", params=["Llama", "BERT"])
def pair(request: Any, tmp_path_factory: Any) -> tuple[Any, Any]:
    """A model, and the same whose parameters are all on a disk."""
    model = tiny.build(tiny.TEXT[request.param])
    folder: Path = tmp_path_factory.mktemp("offloaded")
    other = tiny.build(tiny.TEXT[request.param])
    other.load_state_dict(model.state_dict())
    other = accelerate.disk_offload(other, str(folder), execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in other.parameters())
    return model, other


def served() -> list[str]:
    return [method.name for method in methods() if method.function.__module__.startswith("attnwidgets.")]


@pytest.mark.parametrize("name", served())
def test_offloaded_models_give_the_same_numbers(name: str, pair: tuple[Any, Any]) -> None:
    model, other = pair
    expected, trace = (aw.trace(each, None, IDS) for each in (model, other))
    refusals = methods(expected).refusals or {}
    assert (methods(trace).refusals or {})[name] == refusals[name]
    if refusals[name]:
        return
    options = {"target": aw.targets.token(7, position=2)} if "target" in methods()[name].options else {}
    result = aw.explain(trace, name, **options).values
    np.testing.assert_allclose(result, aw.explain(expected, name, **options).values, atol=2e-6)


def test_offloaded_models_are_changed_and_generate(pair: tuple[Any, Any]) -> None:
    changed = [aw.trace(each, None, IDS).rerun(aw.ablate_heads(each, (1, 0))) for each in pair]
    torch.testing.assert_close(changed[1].logits, changed[0].logits)
    if pair[0].can_generate():
        texts = [aw.trace(each, None, IDS, max_new_tokens=2).tokens for each in pair]
        assert texts[0] == texts[1]
