"""Public names that moved: the former ones work until version 0.3, and warn with the present one."""

from __future__ import annotations

_MOVED = {
    "aw.evaluate": {"aw": "agreement"},
    "aw.statistics": {"aw": "free_attention head_importance head_statistics induction_score retrieval_score"},
    "aw.views": {
        "aw": "ClaimView CompareView ConceptView InfluenceView LensView PatchView RelevanceMap "
        "ScorecardView Selection SentenceView ShapeView",
    },
    "aw.results": {
        "aw": "Attributions Continuation ContributionGraph FeatureActivations MixingMap TokenAxis Trace Unit",
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
