"""aw.concepts.tcav: whether a prediction depends on a concept, layer by layer.

The states of all texts, and the gradients at the examples, are computed once (`states.py`); after that no
model runs. `concept_scores` then goes through the layers: in each, the classifiers of all concepts and runs
are fitted together from inner products of states (`directions_of_sets.py`); p comes from exchanged
membership. Runs, folds and permutations draw from a generator seeded by layer, so that the scores of a layer
are the same whichever other layers were requested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice, suggests_keywords
from attnwidgets._former import former_keywords
from attnwidgets._progress import progress
from attnwidgets._significance import holm, two_sided
from attnwidgets.concepts.batches import Inputs, texts_of
from attnwidgets.concepts.concept_scores import ConceptScores
from attnwidgets.concepts.concept_sets import concept_sets
from attnwidgets.concepts.directions_of_sets import CAVS, LayerStates, share_positive
from attnwidgets.concepts.states import BATCH, states_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.concepts.concept_sets import ConceptSets
    from attnwidgets.concepts.directions_of_sets import Cav, Pair
    from attnwidgets.concepts.states_result import At, States

    Float = NDArray[np.float64]

PURPOSE = "concepts.tcav"
PAPER = "Kim et al. 2018, Interpretability Beyond Feature Attribution: TCAV"
_SAME_GRADIENT = 0.999  # mean cosine of gradients from which a note says that a score can only be 0 or 1


@dataclass(frozen=True, kw_only=True)
class ConceptTest:
    """How `tcav` fits the direction of a concept, and tests it.

    Args:
        cav: Fit of a direction: "logistic" regression, "mean_difference" (no fit), or "svm" (squared
            hinge).
        penalty: Weight of |w|^2 / 2, for states divided by their spread over texts; scikit-learn's 1 / C.
        runs: How often a random set is drawn.
        folds: Parts of the cross-validation.
        permutations: Exchanges of membership for p, whose smallest value is 1 / (permutations + 1).
        level: Level below which a corrected p is called significant.
        seed: Seed of all draws.
        batch_size: Most texts of a batch.

    Raises:
        ValueError: If an option is unknown or out of range.

    Example:
        >>> aw.concepts.ConceptTest(runs=5, permutations=99).cav
        'logistic'
    """

    cav: Cav = "logistic"
    penalty: float = 1.0
    runs: int = 20
    folds: int = 3
    permutations: int = 999
    level: float = 0.05
    seed: int = 0
    batch_size: int = BATCH

    def __post_init__(self) -> None:
        require_choice("cav", self.cav, CAVS)
        for name, least in (("runs", 1), ("folds", 2), ("permutations", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}.")
        if not 0 < self.level < 1:
            raise ValueError(f"level is {self.level!r}; give a number above 0 and below 1, such as 0.05.")


_DEFAULT = ConceptTest()
Settings = ConceptTest  # its name in older pickles of ConceptScores


@former_keywords(
    [option.name for option in fields(ConceptTest)], "test", "aw.concepts.ConceptTest(...)", ConceptTest
)
@suggests_keywords
def tcav(
    model: Any,
    tokenizer: Any,
    concepts: Mapping[str, Any],
    examples: Sequence[Any],
    target: Any,
    *,
    random: Sequence[Any],
    foil: Any = None,
    layers: int | Iterable[int] | slice | None = None,
    at: At = "mean",
    test: ConceptTest = _DEFAULT,
    force: bool = False,
) -> ConceptScores:
    """Test whether a prediction depends on concepts: the share of examples that a concept's direction raises.

    With h the state of an example and v the unit direction that tells the concept's texts from random ones,

        S = gradient of the target by h, times v        score = share of examples with S > 0

    Each run takes other random texts. A score says something only where the classifier behind v generalises
    (`.accuracy`, by cross-validation) and where random texts in place of the concept's would not do the same
    (`.p`: membership is exchanged between the concept's texts and all random ones, and mean(S) compared; the
    direction of each exchange is a linear discriminant, one Newton step of the fit; `.p_holm` is corrected
    for the number of concepts and layers). A score depends on the sign alone, so that 1.0 may be a strong
    effect or a tiny one, and where gradients are alike random texts have scores of 0 and 1, too:
    `.sensitivity` has sizes.

    Args:
        model: As `aw.trace` takes it.
        tokenizer: Its tokenizer.
        concepts: By name: texts that show the concept, a direction [dim] or [layer, dim] (as for steering),
            or (sae, feature).
        examples: Texts whose prediction is explained, usually of the target's class.
        target: A class by name or index, or any target.
        random: Texts without the concept, from which each run draws as many as the concept has; or a
            list of such sets, for every run another. Texts that are also the concept's are left out for it.
        foil: Contrasting target.
        layers: Numbers of layers, as for `aw.concepts.states`; by default all but the embeddings.
        at: Token or tokens of a text whose state is read, as for `aw.concepts.states`.
        test: The fit of a direction, the number of runs and permutations, the level and the seed: an
            `aw.concepts.ConceptTest`.
        force: Run even if this needs more memory than is free.

    Returns:
        `ConceptScores` [concept, layer]; `.notes` holds caveats.

    Raises:
        ValueError: If a set has fewer than two texts, no random text is left, or the target is missing.
        TypeError: If `concepts` is not a mapping, or `test` is not a ConceptTest.
        IndexError: If the layer is out of range.

    Source: Kim et al. 2018. Directions have length one (the authors' have not), p is by permutation (theirs
    is a t-test over runs that share texts, whose p falls with the number of runs).

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> texts = [example.text for example in aw.demo_texts("train")]
        >>> concepts = {"negation": [text for text in texts if " not " in text or "n't" in text]}
        >>> examples = [text.text for text in aw.demo_texts("test") if text.label == "negative"][:8]
        >>> options = {"random": texts[:60], "layers": [4], "test": aw.concepts.ConceptTest(runs=5)}
        >>> result = aw.concepts.tcav(model, tokenizer, concepts, examples, "negative", **options)
        >>> result.scores.shape, bool(result.accuracy[0, 0] > 0.6)
        ((1, 1), True)
    """
    if not isinstance(test, ConceptTest):
        raise TypeError(f"test takes an aw.concepts.ConceptTest, not {test!r:.60}.")
    if isinstance(at, str) and at == "tokens":
        raise ValueError(
            "at 'tokens' has several states for a text, and a concept is in one; take 'mean', 'cls' or "
            "'last'."
        )
    if target is None and foil is None:
        raise ValueError(
            f"{PURPOSE}: target is None; name the class whose score a concept may raise, such as 'negative'."
        )
    example_texts = texts_of(examples, PURPOSE, "examples")
    sets = concept_sets(concepts, random, example_texts, PURPOSE)
    inputs = Inputs(model, tokenizer, example_texts, PURPOSE)
    options: dict[str, Any] = {"at": at, "batch_size": test.batch_size, "force": force}
    example_states = states_of(inputs, layers=layers, target=target, foil=foil, **options)
    if layers is None:
        example_states = example_states.select(layers=example_states.layers[1:])
    inputs_of_sets = Inputs(inputs.first.model, inputs.first.tokenizer, sets.texts, PURPOSE)
    text_states = states_of(inputs_of_sets, layers=example_states.layers, **options)
    return concept_scores(sets, text_states, example_states, test)


def concept_scores(
    sets: ConceptSets, texts: States, examples: States, settings: ConceptTest
) -> ConceptScores:
    """Return the scores of concepts from the states of their texts and the examples' gradients."""
    shape = (len(sets.names), len(examples.layers))
    parts = []
    for column, layer in enumerate(progress(examples.layers, "concepts, by layers")):
        states = LayerStates(texts.layer(layer), examples.gradient(layer), settings.cav, settings.penalty)
        _require_finite(states, layer)
        rng = np.random.default_rng([settings.seed, layer])
        parts.append(_layer(sets, states, settings, column, rng))
    p = np.stack([part.p for part in parts], axis=1)
    cosines = np.array([_mean_cosine(examples.gradient(layer)) for layer in examples.layers])
    constant = [
        layer for layer, cosine in zip(examples.layers, cosines, strict=True) if cosine > _SAME_GRADIENT
    ]
    notes: list[str] = []  # about the whole result first, then about single sets of texts
    if constant:
        notes.append(
            f"at layer{'s' * (len(constant) > 1)} {', '.join(map(str, constant))} the gradient has the same "
            "direction for every example, so that a score can only be 0 or 1 there"
        )
    least = p.size / (settings.permutations + 1)
    if least > settings.level:
        notes.append(
            f"nothing can be significant: of {p.size} concepts and layers together, a corrected p of "
            f"{settings.permutations} permutations is at least {min(1.0, least):.2g}; take "
            f"permutations={math.ceil(p.size / settings.level) - 1} or more"
        )
    return ConceptScores(
        concepts=sets.names,
        layers=examples.layers,
        target=examples.target,
        at=examples.at,
        cav=settings.cav,
        by_run=np.stack([part.scores for part in parts], axis=1),
        random=np.stack([part.random for part in parts], axis=0),
        sensitivity=np.stack([part.sensitivity for part in parts], axis=2),
        accuracy=np.stack([part.accuracy for part in parts], axis=1),
        p=p,
        p_holm=holm(p).reshape(shape),
        cavs=np.stack([part.cavs for part in parts], axis=1),
        gradient_cosine=cosines,
        level=settings.level,
        examples=examples,
        texts=texts,
        notes=(*notes, *sets.notes),
        _sets=sets,
        _settings=settings,
    )


@dataclass(frozen=True)
class _Part:
    """The scores of a layer.

    Attributes:
        scores: [concept, run].
        random: [run].
        sensitivity: [example, concept].
        accuracy: [concept].
        p: [concept].
        cavs: [concept, run, dim].
    """

    scores: Float
    random: Float
    sensitivity: Float
    accuracy: Float
    p: Float
    cavs: NDArray[np.float32]


def _layer(
    sets: ConceptSets, states: LayerStates, settings: ConceptTest, column: int, rng: np.random.Generator
) -> _Part:
    """Return the scores of a layer: all fits of all concepts at once."""
    pairs: list[Pair] = []
    for name in sets.rows:
        drawn = sets.runs_of(name, settings.runs, rng)
        pairs += [drawn[run % len(drawn)] for run in range(settings.runs)]
    chance = sets.random_runs(settings.runs, rng)
    fits = states.fit([*pairs, *chance])
    sensitivities = np.stack([states.sensitivities(rows, alpha) for rows, alpha, _ in fits], axis=1)
    scores = share_positive(sensitivities)
    fitted, count = len(pairs), len(sets.rows)
    by_run = scores[:fitted].reshape(count, settings.runs)
    mean = sensitivities[:, :fitted].reshape(len(sensitivities), count, settings.runs).mean(2)
    accuracy = states.accuracy(pairs, settings.folds, rng).reshape(count, settings.runs).mean(1)
    p = [_p_of_set(states, (sets.rows[name], sets.pool_of(name)), settings, rng) for name in sets.rows]
    width = states.centred.shape[1]
    cavs = np.zeros((len(sets.names), settings.runs, width), np.float32)
    for number, (rows, alpha, _) in enumerate(fits[:fitted]):
        cavs[divmod(number, settings.runs)] = states.direction(rows, alpha)
    if sets.vectors:
        units = np.stack([_unit(vector, column, width, name) for name, vector in sets.vectors.items()])
        along = states.gradients @ units.T
        by_run = np.concatenate([by_run, np.repeat(share_positive(along)[:, None], settings.runs, axis=1)])
        mean = np.concatenate([mean, along], axis=1)
        accuracy = np.append(accuracy, np.full(len(units), np.nan))
        cavs[count:] = units[:, None]
        p += _p_of_directions(states, sets, along.mean(0), settings, rng)
    return _Part(by_run, scores[fitted:], mean, accuracy, np.array(p), cavs)


def _p_of_set(states: LayerStates, pair: Pair, settings: ConceptTest, rng: np.random.Generator) -> float:
    draws = states.shuffled(pair, settings.permutations, rng)
    return two_sided(float(draws[0]), draws[1:])


def _p_of_directions(
    states: LayerStates, sets: ConceptSets, observed: Float, settings: ConceptTest, rng: np.random.Generator
) -> list[float]:
    """Return p of concepts that are directions, among directions between halves of the random texts."""
    half = len(sets.pool) // 2
    pair = (sets.pool[:half], sets.pool[half:])
    draws = states.shuffled(pair, settings.permutations, rng)[1:]
    return [two_sided(float(mean), draws) for mean in observed]


def _unit(vector: Float, column: int, width: int, name: str) -> Float:
    direction = vector if vector.ndim == 1 else vector[column % len(vector)]
    if direction.shape != (width,) or (vector.ndim > 1 and column >= len(vector)):
        raise ValueError(
            f"concepts[{name!r}] has shape {vector.shape}; states are {width} wide at every layer."
        )
    return direction / np.linalg.norm(direction)


def _mean_cosine(gradients: NDArray[np.floating]) -> float:
    """Return the mean cosine between gradients of different examples; NaN for a single example."""
    unit = gradients / np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1e-30)
    n = len(unit)
    return float((np.square(unit.sum(0)).sum() - n) / (n * (n - 1))) if n > 1 else float("nan")


def _require_finite(states: LayerStates, layer: int) -> None:
    for name, values in (("states", states.states), ("gradients", states.gradients)):
        if not np.isfinite(values).all():
            raise ValueError(f"{PURPOSE}: the {name} of layer {layer} hold NaN or infinite values.")
    if not np.any(states.gradients):
        raise ValueError(
            f"{PURPOSE}: the target does not depend on the states of layer {layer}: all gradients are zero."
        )
