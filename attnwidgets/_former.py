"""Public names and keywords that moved: the former ones work until version 0.3, and warn with the present."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from attnwidgets._errors import deprecated
from attnwidgets._selecting import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

P = ParamSpec("P")
R = TypeVar("R")

_MOVED = {
    "aw.evaluate": {"aw": "agreement"},
    "aw.statistics": {"aw": "free_attention head_importance head_statistics induction_score retrieval_score"},
    "aw.views": {
        "aw": "ClaimView CompareView ConceptView InfluenceView LayerProfile LensView PatchView RelevanceMap "
        "ScorecardView Selection SentenceView ShapeView",
    },
    "aw.results": {
        "aw": "Attributions Continuation ContributionGraph FeatureActivations FeatureStats MixingMap "
        "TokenAxis Trace Unit",
        "aw.circuits": "AttentionInfluence BothWays CircuitGraph Claim ClaimReport ClaimResult ClaimText "
        "CodedHeads Component ComponentRelevance ContextReliance Edge EdgeAttribution Faithfulness GraphLink "
        "GraphNode HeadCircuits Lens Overlap PairedRuns PatchedCells PatchedSets Patching RelevantComponent",
        "aw.concepts": "Additive ConceptScores Influence InfluentialText Misjudged SortedText States",
        "aw.evaluate": "AdversarialAttention Agreement MinimalEdits Robustness Scorecard",
        "aw.people": "Analysis Plan Responses Study Trial",
        "aw.speech": "BlankedOut SpokenCues SpokenSentence WordTime WordTimes",
        "aw.statistics": "FreeAttention HeadPatterns HeadStatistics Pattern RankedHead Sink Statistic",
        "aw.vision": "OutlierTokens RegisterNeuron",
        "aw.zoo": "Ablation Measured Mixing Truth",
    },
}

FORMER = {
    f"{before}.{name}": f"{now}.{name}"
    for now, names_before in _MOVED.items()
    for before, names in names_before.items()
    for name in names.split()
}
"""The present name by the former one: "aw.statistics.head_importance" by "aw.head_importance"."""


def former_keywords(
    names: Collection[str], into: str, written: str, make: Callable[..., Any], *, also: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take the options of an argument as keywords, as before it had the argument; they warn.

    Args:
        names: The former keywords.
        into: The argument that holds them now.
        written: Its value as it is written: "aw.evaluate.Removal(...)".
        make: Returns the value from the former keywords: a class, or a function.
        also: Present keywords that go into the argument, too, where a former keyword is given.
    """

    def taking(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def with_former(*args: P.args, **kwargs: P.kwargs) -> R:
            former: dict[str, Any] = {name: kwargs.pop(name) for name in names if name in kwargs}
            if former:
                change = f"{function.__name__}: {listed(former)} belong in {into}={written}"
                former |= {name: kwargs.pop(name) for name in also if name in kwargs}
                if into in kwargs:
                    raise TypeError(f"{change}, which is given too.")
                deprecated(change)
                kwargs[into] = make(**former)
            return function(*args, **kwargs)

        return with_former

    return taking
