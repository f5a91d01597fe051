"""aw.concepts.mislabelled: how well wrong labels are found by self-influence, and by the plain loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.evaluate.metrics.ranking import average_precision, expected_average_precision
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.concepts.influence_result import Influence
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard


def mislabelled(influence: Influence, flipped: Iterable[int]) -> Scorecard:
    """Score how well influence finds wrong training labels, compared with the plain loss and chance.

    A text that only it itself explains influences its own loss most. So does, nearly as well, a text with a
    large loss, which needs no Hessian: the scorecard shows both.

    Args:
        influence: Of a model trained with the wrong labels.
        flipped: Numbers of the training texts whose labels are known to be wrong.

    Returns:
        A Scorecard [metric, method, 1] of two metrics, 0 to 1: average precision of the ranking, and recall,
        the share of wrong labels among the first n texts, for n wrong labels. Baselines: "random" in closed
        form, "oracle".

    Raises:
        ValueError: If no text is named.
        IndexError: If the index of the text is out of range.

    Source: Koh and Liang 2017, section 5.4.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> train = aw.demo_texts("train")[:40]
        >>> labels = [int(each.label == "positive") for each in train]
        >>> labels[3] = 1 - labels[3]
        >>> found = aw.concepts.influence(model, tokenizer, train, train[:1], labels=labels)
        >>> aw.concepts.mislabelled(found, [3]).methods
        ('self_influence', 'loss', 'random', 'oracle')
    """
    n = len(influence.train)
    wrong = sorted({int(at) for at in flipped})
    if not wrong:
        raise ValueError("flipped is empty: name at least one training text whose label is wrong.")
    if wrong[0] < 0 or wrong[-1] >= n:
        raise IndexError(
            f"flipped names text {wrong[-1] if wrong[-1] >= n else wrong[0]}; there are 0 to {n - 1}."
        )
    rows = []
    for scores in (influence.self_influence, influence.losses):
        first = np.argsort(-scores, kind="stable")[: len(wrong)]
        rows.append((average_precision(scores, wrong), float(np.isin(first, wrong).mean())))
    rows += [(expected_average_precision(len(wrong), n), len(wrong) / n), (1.0, 1.0)]
    return scored(
        np.array(rows).T[None, :, :, None],
        "mislabelled",
        model=influence.model,
        metrics=("average_precision", "recall"),
        methods=("self_influence", "loss", RANDOM, ORACLE),
        baselines=(RANDOM, ORACLE),
        unit="text",
        options={"of": influence.of, "l2": influence.l2, "flipped": len(wrong), "texts": n},
        paper="Koh and Liang 2017, section 5.4",
    )
