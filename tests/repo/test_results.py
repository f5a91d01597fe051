"""Results are tables, and `.top()` returns rows, the largest first, by the name of a ranking and a number."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.circuits.components import Component
from attnwidgets.circuits.paired import PatchedSets
from attnwidgets.statistics.table import RankedHead

from .public import public

if TYPE_CHECKING:
    from collections.abc import Callable

NO_RESULTS = {
    # inputs, and parts of results
    *("results.Continuation", "SAE", "results.TokenAxis", "results.Trace", "results.Unit", "results.Claim"),
    *("people.Agent", "people.Item", "results.Study", "results.Trial", "results.SpokenSentence"),
    *("targets.Target", "results.Pattern", "results.Statistic", "evaluate.Removal"),
    # options
    *("FeatureDashboard", "evaluate.CueProtocol", "concepts.HeadRefit", "concepts.LossGradients"),
    *(
        "evaluate.AttackSearch",
        "evaluate.RandomBaseline",
        "concepts.Batches",
        "concepts.ConceptTest",
        "circuits.Sweep",
    ),
    # several matrices, fitted models, and runs that are open
    *("results.HeadCircuits", "circuits.Translator", "results.PairedRuns", "results.TrainingRun"),
    # no result: writes files for a run
    "zoo.train.CheckpointCallback",
    # facts about a model of aw.zoo, in words
    *("results.Measured", "results.Truth", "results.Scene"),
}


def results() -> dict[str, type]:
    """Public classes of results by name; named tuples are rows of them."""
    return {
        name: item
        for name, item in public().items()
        if inspect.isclass(item)
        and not issubclass(item, (BaseException, tuple))
        and not item.__module__.startswith(("attnwidgets.views", "attnwidgets.people.study_view"))
        and not name.startswith("ask.")
        and name not in NO_RESULTS
    }


def graph() -> Any:
    nodes = {name: aw.results.GraphNode(name, 0, 0, "feature", "") for name in "abc"}
    links = [aw.results.GraphLink("a", "b", -2.0), aw.results.GraphLink("b", "c", 1.0)]
    return aw.results.CircuitGraph(("x",), nodes, tuple(links), "")


def patching() -> Any:
    model, tokenizer = aw.demo_model("induction")
    clean, corrupt = (aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb"))
    return aw.circuits.patch(clean, corrupt, "c", foil="a")


def components() -> Any:
    model, tokenizer = aw.demo_model("induction")
    return aw.circuits.component_relevance(aw.trace(model, tokenizer, "fadebcfadeb"), "c")


def edges() -> Any:
    ends = (
        (Component("input", -1), Component("head", 0, 0)),
        (Component("head", 0, 0), Component("output", 1)),
    )
    scores = np.array([[0.5, -2.0], [np.nan, 1.0]])
    return aw.results.EdgeAttribution(*ends, scores, 1)


def patterns() -> Any:
    model, tokenizer = aw.demo_model("induction")
    return aw.statistics.head_patterns(aw.trace(model, tokenizer, "fadebcfadeb"))


def head_statistics() -> Any:
    values = [[[0.5, np.nan], [-3.0, 2.0]], [[1.0, 0.0], [0.25, 4.0]]]
    return aw.results.HeadStatistics(
        values, names=["removal", "removal_estimate"], layers=[0, 3], heads=[0, 1]
    )


def loadings() -> Any:
    model, tokenizer = aw.demo_model("induction")
    return aw.circuits.head_loadings(aw.trace(model, tokenizer, "fadebcfadeb"), ("state", 0), "c", token=6)


MADE: dict[str, tuple[Callable[[], Any], str]] = {
    "results.CircuitGraph": (graph, "source target weight"),
    "results.CodedHeads": (
        lambda: aw.results.CodedHeads(np.array([[0.1, 0.9], [-0.5, np.nan]]), np.ones((2, 2)), 0.5, 8, 8),
        "layer head score codes",
    ),
    "results.ComponentRelevance": (components, "kind layer head relevant irrelevant"),
    "results.EdgeAttribution": (edges, "sender receiver score"),
    "results.HeadLoadings": (loadings, "layer head value direct"),
    "results.NormWeights": (
        lambda: aw.results.NormWeights(
            np.array([[[9.0, 1.0, 9.0, 1.0, 1.0], [1.0, 9.0, 1.0, 1.0, 1.0]]] * 2),
            ("norm 1", "norm 2"),
            (0, 1),
            1.1,
        ),
        "norm layer dim weight deviation",
    ),
    "results.Patching": (patching, "site layer token clean corrupt head share raw"),
    "results.HeadPatterns": (patterns, "pattern layer head value"),
    "results.HeadStatistics": (head_statistics, "statistic layer head value"),
}
BY_VALUE = {"results.CodedHeads", "results.HeadPatterns", "results.HeadStatistics"}  # not by size
NAMED = {
    "results.Patching": "head",
    "results.HeadPatterns": "duplicate",
    "results.HeadStatistics": "removal",
}
FORMER = {"results.Lens": "top_tokens", "results.FeatureActivations": "strongest"}


@pytest.mark.parametrize("name", results())
def test_every_result_is_a_table(name: str) -> None:
    assert callable(getattr(results()[name], "to_dataframe", None)), f"aw.{name} has no .to_dataframe()"


@pytest.mark.parametrize("name", [name for name, item in public().items() if hasattr(item, "top")])
def test_top_is_a_list_of_rows_with_the_largest_first(name: str) -> None:
    if name in FORMER:
        assert public()[name].top.__doc__ == f"Deprecated name of `{FORMER[name]}`."
        return
    result = MADE[name][0]()
    every = result.top(k=None)
    assert isinstance(every, list)
    assert all(isinstance(row, tuple) and hasattr(row, "_fields") for row in every)
    numbers = [row[-1] if name in BY_VALUE else abs(row[-1]) for row in every]
    assert len(numbers) > 2 - (name == "results.CircuitGraph")
    assert numbers == sorted(numbers, reverse=True)
    assert result.top(2) == result.top(k=2) == every[:2]
    assert result.top() == every[:10]
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        result.top(0)
    if name in NAMED:
        assert result.top(NAMED[name], 2) == result.top(NAMED[name])[:2]


@pytest.mark.parametrize("name", MADE)
def test_a_table_has_a_row_for_each_number(name: str) -> None:
    make, columns = MADE[name]
    table = make().to_dataframe()
    assert list(table.columns) == columns.split()
    assert len(table) > 1
    assert not table[columns.split()[-1]].isna().any() or name == "results.HeadStatistics"


def test_tables_of_results_without_a_ranking() -> None:
    influence = aw.results.AttentionInfluence(
        ("a", "b"), np.array([1.0, 2.0]), np.array([2.0, 2.0]), np.ones((1, 2)), ((0, 0),), (((0, 1),),)
    )
    assert influence.to_dataframe().influence.tolist() == [1.0, 0.0]
    swapped = aw.results.AdversarialAttention((1,), {1: np.full((1, 2, 2), 0.5)}, 0.1, 0.0, 0.01)
    assert swapped.to_dataframe().shape == (4, 5)
    ranks = aw.results.Robustness(("a", "b"), ("first", "second"), np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert ranks.to_dataframe().unsettled.tolist() == [True, True]
    outliers = aw.results.OutlierTokens(3, 10.0, (4,), ("patch 4",), (12.0,), 1.0, 16)
    assert outliers.to_rows() == [{"token": 4, "label": "patch 4", "norm": 12.0}]
    assert PatchedSets(np.ones(2), np.zeros(2), 0.0, 1.0).to_dataframe().shape == (2, 2)
    model, tokenizer = aw.demo_model("induction")
    first, second = (aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb"))
    assert {"c", "a"} <= set(first.diff(second).to_dataframe().label)
    free = aw.statistics.free_attention(first, layer=0, head=0)
    assert list(free.to_dataframe().columns) == ["layer", "head", "query", "movable"]


def test_former_names_and_orders_warn_and_work() -> None:
    result = patching()
    with pytest.warns(DeprecationWarning, match="takes the site first now; the former call works until"):
        assert result.top(2, "head") == result.top("head", 2)
    lens = aw.circuits.lens(result.pair.clean, "c")
    with pytest.warns(DeprecationWarning, match=r"Lens.top\(\) is called top_tokens\(\) now"):
        assert lens.top(1) == lens.top_tokens(1)
    induction = aw.zoo.induction(letters="abcdefgh", length=16)
    claims, texts = ["head 0.0 is previous token"], ["fadeb", "hagcb"]
    checked = aw.circuits.check_claims(*induction, claims, texts, resamples=100)
    with pytest.warns(DeprecationWarning, match="takes the claims third now"):
        former = aw.circuits.check_claims(claims, *induction, texts, resamples=100)
    assert repr(former) == repr(checked)
    recall = aw.evaluate.recall_of_truth(*induction, "fadebcfadeb", "attention")
    with pytest.warns(DeprecationWarning, match="takes the model first now"):
        former = aw.evaluate.recall_of_truth("attention", "fadebcfadeb", *induction)
    assert (former.mean == recall.mean).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lens.top_tokens(1)
        assert head_statistics().top(1) == [RankedHead(3, 1, 2.0)]
