"""One `Removal` for several metrics: each reads its options, and says which it does not read."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw

METRICS = (
    *("faithfulness", "fidelity", "performance_loss", "effective_complexity", "infidelity"),
    *("single_removals", "importance_correlation", "remove_and_retrain", "compare"),
)


@pytest.fixture(scope="module")
def trace() -> Any:
    return aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_by_removal_takes_a_removal(name: str) -> None:
    parameters = inspect.signature(getattr(aw.evaluate, name)).parameters
    assert {"operator", "removal"} <= set(parameters)
    assert len(parameters) <= 12


def test_an_operator_is_a_removal_with_the_metric_s_defaults(trace: Any) -> None:
    for metric in (aw.evaluate.faithfulness, aw.evaluate.fidelity, aw.evaluate.effective_complexity):
        short = metric(trace, "saliency", operator="mask", unit="word")
        long = metric(trace, "saliency", removal=aw.evaluate.Removal("mask"), unit="word")
        np.testing.assert_array_equal(short.samples, long.samples)
        assert short.provenance == long.provenance


def test_former_keywords_work_and_say_where_they_belong(trace: Any) -> None:
    removal = aw.evaluate.Removal("mask", draws=3, oracle=None)
    card = aw.evaluate.faithfulness(trace, "saliency", removal=removal)
    with pytest.warns(DeprecationWarning, match=r"'oracle', 'draws' belong in removal=aw\.evaluate\.Removal"):
        former = aw.evaluate.faithfulness(trace, "saliency", operator="mask", draws=3, oracle=None)
    np.testing.assert_array_equal(card.samples, former.samples)
    with pytest.raises(TypeError, match="which is given too"):
        aw.evaluate.faithfulness(trace, "saliency", removal=removal, draws=3)


def test_an_option_that_a_metric_ignores_is_refused(trace: Any) -> None:
    with pytest.raises(
        ValueError, match="infidelity does not read 'by'; it reads 'operator', 'score', 'draws'"
    ):
        aw.evaluate.infidelity(trace, "saliency", removal=aw.evaluate.Removal("mask", by="magnitude"))
    with pytest.raises(ValueError, match="fidelity does not read 'score'"):
        aw.evaluate.fidelity(trace, "saliency", removal=aw.evaluate.Removal("mask", score="number"))


def test_what_is_missing_or_twice_is_said(trace: Any) -> None:
    with pytest.raises(ValueError, match="operator is missing"):
        aw.evaluate.faithfulness(trace, "saliency")
    removal = aw.evaluate.Removal("mask")
    with pytest.raises(ValueError, match="operator and removal are both given"):
        aw.evaluate.faithfulness(trace, "saliency", operator="mask", removal=removal)
    with pytest.raises(TypeError, match=r"removal takes an aw\.evaluate\.Removal, not 'mask'"):
        aw.evaluate.faithfulness(trace, "saliency", removal="mask")
    with pytest.raises(ValueError, match=r"operator.*'maks'"):
        aw.evaluate.Removal("maks")


def test_compare_asks_for_an_operator_only_where_it_removes(trace: Any) -> None:
    removal = aw.evaluate.Removal(seed=1)
    assert aw.evaluate.compare("saliency", "gini", [trace], removal=removal)["complexity"].n_examples == 1
    with pytest.raises(ValueError, match="operator is missing"):
        aw.evaluate.compare("saliency", "deletion", [trace], removal=removal)
    with (
        pytest.warns(DeprecationWarning, match="draws"),
        pytest.raises(ValueError, match="operator is missing"),
    ):
        aw.evaluate.compare("saliency", "deletion", [trace], draws=3)
