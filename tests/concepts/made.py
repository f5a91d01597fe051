"""Results of given numbers, without a model: scores of concepts, influence, a distilled model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.concepts.concept_scores import ConceptScores
from attnwidgets.concepts.distill import additive
from attnwidgets.concepts.influence_result import Influence
from attnwidgets.concepts.refit import Refit, with_ones
from attnwidgets.concepts.states_result import States
from attnwidgets.concepts.template import template_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.concepts.additive import Additive

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\u202eevil \u05e2\u05d1\u05e8\u05d9\u05ea",
    "</script><b>bold</b>",
    "x" * 2400,
    "a\x00b\n" + "long words " * 60,
    "",
)


def states(texts: Sequence[str], layers: Sequence[int], seed: int = 0) -> States:
    """States of texts at random, with a gradient each."""
    rng = np.random.default_rng(seed)
    shape = (len(texts), len(layers), 4)
    values, slopes = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    count = len(texts)
    return States(
        values, tuple(layers), tuple(texts), "mean", np.zeros(count, int), np.ones(count, int), slopes,
        np.zeros(count), "good", "m",
    )  # fmt: skip


def concept_scores(
    concepts: Sequence[str] = ("negation", "food"),
    layers: Sequence[int] = (1, 2, 3),
    texts: Sequence[str] = ("no film", "the soup", "not bad", "a walk"),
    notes: Sequence[str] = ("at layer 3 the gradient is the same for every example",),
) -> ConceptScores:
    """Scores at random of concepts; at the last layer those of the first concept are significant."""
    rng = np.random.default_rng(1)
    shape = (len(concepts), len(layers))
    p = np.full(shape, 0.4)
    p[0, -1] = 0.01
    cavs = rng.normal(size=(*shape, 3, 4)).astype(np.float32)
    return ConceptScores(
        concepts=tuple(concepts), layers=tuple(layers), target="good", at="mean", cav="logistic",
        by_run=rng.uniform(size=(*shape, 3)), random=rng.uniform(0.3, 0.6, size=(len(layers), 9)),
        sensitivity=rng.normal(size=(len(texts), *shape)), accuracy=rng.uniform(0.7, 1, size=shape), p=p,
        p_holm=p, cavs=cavs / np.linalg.norm(cavs, axis=-1, keepdims=True),
        gradient_cosine=np.full(len(layers), 0.5), level=0.05, examples=states(texts, layers),
        texts=states(["one", "two"], layers, 2), notes=tuple(notes),
    )  # fmt: skip


def influence(
    train: Sequence[str] = tuple(f"training text {at}" for at in range(12)),
    tests: Sequence[str] = ("a test", "another test"),
    names: Sequence[str] = ("negative", "positive"),
    notes: Sequence[str] = (),
    sample: Any = None,
) -> Influence:
    """Influence on a head that is fitted to features at random."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(len(train), 3))
    labels = (features[:, 0] + 0.5 * rng.normal(size=len(train)) > 0).astype(float)
    labels[:2] = 0, 1
    shown = with_ones(rng.normal(size=(len(tests), 3)))
    targets = np.arange(len(tests)) % 2.0
    refit = Refit(with_ones(features), labels, 1, "binary", 0.05)
    values = refit.influence(shown, targets)
    return Influence(
        values=values, change=-values / len(train), self_influence=refit.self_influence,
        losses=refit.losses(refit.outputs_for(refit.features), labels), leverage=None,
        distance=rng.uniform(0, 2, size=values.shape), tests=tuple(tests), train=tuple(train),
        test_labels=tuple(names[int(item)] for item in targets),
        train_labels=tuple(names[int(label)] for label in labels),
        of="head", measure="loss", l2=0.05, agreement=1.0, agreement_train=0.9, gradient_norm=0.1, model="m",
        notes=tuple(notes), _refit=refit, _tests=(shown, targets), _sample=sample,
    )  # fmt: skip


def gradients() -> Influence:
    """Influence by gradients, which fits no head and knows no distance."""
    values = np.array([[-0.2, 0.1, np.nan]])
    return Influence(
        values=values, change=None, self_influence=np.ones(3), losses=np.array([0.1, 0.2, 0.3]),
        leverage=None, distance=None, tests=("a test",), train=("one", "two", "three"), test_labels=("",),
        train_labels=("", "", ""), of="gradients", measure="loss", l2=np.nan, agreement=np.nan,
        agreement_train=np.nan, gradient_norm=np.nan,
    )  # fmt: skip


def distilled(
    order: int = 2, levels: Sequence[str] = ("good", "awful"), *, constant: bool = False
) -> Additive:
    """A model on a template whose *not* turns the second slot round."""
    slots = {"how": ["", "not "], "adj": list(levels)}
    template = template_of("It was {how}{adj}.", slots, "test")
    cells = template.cells(5000, 0)
    signs = np.where(cells[:, 0] == 1, -1.0, 1.0)
    values = np.zeros(len(cells)) if constant else signs * (cells[:, 1] - 0.4) + 0.1 * cells[:, 0]
    return additive(template, cells, values, order, "good rather than bad", "m", 0)


def sampled() -> Additive:
    """The same from some texts of a larger template."""
    slots = {name: [f"{name}{at} " for at in range(6)] for name in "abc"}
    template = template_of("{a}{b}{c}", slots, "test")
    cells = template.cells(80, 0)
    return additive(template, cells, cells.sum(1) + 0.3 * (cells[:, 0] * cells[:, 1] % 3), 2, "sum", "m", 0)
