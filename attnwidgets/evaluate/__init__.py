"""Is it an explanation? Scores of methods over annotated examples, as `Scorecard`s: `aw.evaluate`."""

from __future__ import annotations

from attnwidgets.evaluate.agreement import agreement
from attnwidgets.evaluate.agreement_matrix import Agreement
from attnwidgets.evaluate.attention_swaps import (
    AdversarialAttention,
    adversarial_attention,
    attention_permutation,
)
from attnwidgets.evaluate.combining import averaged, beside
from attnwidgets.evaluate.compare import compare
from attnwidgets.evaluate.comparison import Comparison
from attnwidgets.evaluate.complexity import complexity, entropy, features_above, gini, sparsity
from attnwidgets.evaluate.consistency import consistency, implementation_invariance
from attnwidgets.evaluate.cue_contribution import cue_contribution
from attnwidgets.evaluate.curves import aopc, area
from attnwidgets.evaluate.effective_complexity import effective_complexity
from attnwidgets.evaluate.example_scores import example_scores
from attnwidgets.evaluate.faithfulness import faithfulness
from attnwidgets.evaluate.fidelity import characterization, fidelity
from attnwidgets.evaluate.importance_correlation import importance_correlation
from attnwidgets.evaluate.infidelity import infidelity
from attnwidgets.evaluate.performance_loss import performance_loss
from attnwidgets.evaluate.plausibility import plausibility
from attnwidgets.evaluate.ranking import average_precision, expected_average_precision
from attnwidgets.evaluate.rationales import rationale_elements
from attnwidgets.evaluate.removal import OPERATORS, possible_operators
from attnwidgets.evaluate.retraining import remove_and_retrain
from attnwidgets.evaluate.robustness import Robustness, robustness
from attnwidgets.evaluate.scorecard import Scorecard
from attnwidgets.evaluate.single_removals import single_removals
from attnwidgets.evaluate.stability import stability
from attnwidgets.evaluate.uniform_attention import uniform_attention

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
