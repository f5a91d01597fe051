"""aw.evaluate: scores of explanations by what they do to the model and what people mark, as `Scorecard`s."""

from __future__ import annotations

from attnwidgets.evaluate.comparing.compare import compare
from attnwidgets.evaluate.comparing.comparison import Comparison
from attnwidgets.evaluate.examples.example_scores import example_scores
from attnwidgets.evaluate.examples.rationales import rationale_elements
from attnwidgets.evaluate.metrics.agreement import agreement
from attnwidgets.evaluate.metrics.agreement_matrix import Agreement
from attnwidgets.evaluate.metrics.attention_swaps import (
    AdversarialAttention,
    adversarial_attention,
    attention_permutation,
)
from attnwidgets.evaluate.metrics.complexity import complexity, entropy, features_above, gini, sparsity
from attnwidgets.evaluate.metrics.consistency import consistency, implementation_invariance
from attnwidgets.evaluate.metrics.cue_contribution import cue_contribution
from attnwidgets.evaluate.metrics.effective_complexity import effective_complexity
from attnwidgets.evaluate.metrics.faithfulness import faithfulness
from attnwidgets.evaluate.metrics.fidelity import characterization, fidelity
from attnwidgets.evaluate.metrics.importance_correlation import importance_correlation
from attnwidgets.evaluate.metrics.infidelity import infidelity
from attnwidgets.evaluate.metrics.performance_loss import performance_loss
from attnwidgets.evaluate.metrics.plausibility import plausibility
from attnwidgets.evaluate.metrics.ranking import average_precision, expected_average_precision
from attnwidgets.evaluate.metrics.retraining import remove_and_retrain
from attnwidgets.evaluate.metrics.robustness import Robustness, robustness
from attnwidgets.evaluate.metrics.single_removals import single_removals
from attnwidgets.evaluate.metrics.stability import stability
from attnwidgets.evaluate.metrics.uniform_attention import uniform_attention
from attnwidgets.evaluate.removals.removal import OPERATORS, possible_operators
from attnwidgets.evaluate.scorecards.curves import aopc, area
from attnwidgets.evaluate.scorecards.merge import averaged, beside, merged
from attnwidgets.evaluate.scorecards.scorecard import Scorecard

__all__ = [
    "OPERATORS",
    "AdversarialAttention",
    "Agreement",
    "Comparison",
    "Robustness",
    "Scorecard",
    "adversarial_attention",
    "agreement",
    "aopc",
    "area",
    "attention_permutation",
    "average_precision",
    "averaged",
    "beside",
    "characterization",
    "compare",
    "complexity",
    "consistency",
    "cue_contribution",
    "effective_complexity",
    "entropy",
    "example_scores",
    "expected_average_precision",
    "faithfulness",
    "features_above",
    "fidelity",
    "gini",
    "implementation_invariance",
    "importance_correlation",
    "infidelity",
    "merged",
    "performance_loss",
    "plausibility",
    "possible_operators",
    "rationale_elements",
    "remove_and_retrain",
    "robustness",
    "single_removals",
    "sparsity",
    "stability",
    "uniform_attention",
]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
