"""Attacks on explanations: the change of an input that keeps the prediction and moves its explanation.

Ghorbani, Abid and Zou 2019, Interpretation of Neural Networks is Fragile. `attack` is of one text and method,
`attacks` a Scorecard of several; `search.py` finds changes along a gradient, `trials.py` tries them.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._former import former_keywords
from attnwidgets._progress import progress
from attnwidgets.evaluate.attacks.search import AttackSearch
from attnwidgets.evaluate.attacks.trials import by_embeddings, by_words, subject_of
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list, by_name
from attnwidgets.evaluate.scorecards.build import scored
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnwidgets.evaluate.attacks.result import Attack
    from attnwidgets.evaluate.attacks.trials import Words
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard


METRICS = ("attack", "random", "attack_top", "random_top")
PAPER = "Ghorbani et al. 2019, Interpretation of Neural Networks is Fragile"

_DEFAULT = AttackSearch()
_with_former = former_keywords(
    [option.name for option in fields(AttackSearch)], "search", "aw.evaluate.AttackSearch(...)", AttackSearch
)


@_with_former
@forceable
@documented
def attack(
    trace: Any,
    method: Any,
    *,
    words: Words | None = None,
    search: AttackSearch = _DEFAULT,
) -> Attack:
    """Search for the change of an input that keeps the prediction and moves an explanation most.

    With a(x) the explanation and p(x) the probability of the prediction, over changes d within the budget:

        maximise    1 - rho(a(x), a(x + d))
        subject to  the same outcome is predicted, |p(x + d) - p(x)| <= tolerance

    rho is Spearman's rank correlation over the tokens that are not special, which no change touches. By
    default d moves every embedding by at most the search's `budget` of its length, along the gradient of the
    share of the three largest tokens; its `draws` random changes of full length are chance, and count if they
    get farther. With `words`, one word is replaced, and rho is over the words that stay.

    Every change is measured by the method itself, with all its options. Only the direction comes from a
    differentiable form, which attention, rollout, saliency, input x gradient, integrated gradients, LRP and
    occlusion have; other attributions are attacked along the gradient of input x gradient, other maps along
    that of rollout. Activations with a kink (ReLU) have no second derivative, and count as linear there;
    factors that the rules of LRP hold constant are constant.

    **Interpretation.** A map that moved is not wrong: the model at x + d may have other reasons, and the map
    may say so. An attack only shows that the prediction does not determine the explanation. The distance is a
    lower bound; another search may get farther. Ranks of nearly equal values move first: read the share of
    the largest, too.

    Args:
        trace: Trace of one text returned by `aw.trace`.
        method: A name in `aw.methods()`, a pair (name, options), or a function of a trace that returns
            Attributions or a map. Of a map, the last layer is read, in the mean of its heads: the row of the
            last token if it is causal, else of the first.
        words: Words to put in, for an attack by one word; or a function of the text's words and an index,
            such as `aw.evaluate.near_words(model, tokenizer)`. Where the prediction is read at a token, as by
            a language model, only words of as many tokens count.
        search: The budget and the other options: an `aw.evaluate.AttackSearch`.
        force: {force}

    Returns:
        An `Attack`: `.distance` and `.chance`, both explanations and inputs, `.describe()`, and a table of
        every change that was tried.

    Raises:
        ValueError: If the trace is not of one text, has fewer than five tokens
            that are not special, or predicts a number without a probability; the method explains several
            targets at once, reads texts without some of the tokens (by embeddings), or the model has no
            gradients; no word can be replaced.
        TypeError: If the method is a finished explanation, or returns none; if `search` is not an
            AttackSearch.

    Source: Ghorbani et al. 2019, section 3 (top-k attack); Heo et al. 2019 for the loss.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A film of great charm and little plot.")
        >>> found = aw.evaluate.attack(trace, "rollout", search=aw.evaluate.AttackSearch(steps=4))
        >>> found.distance >= found.chance
        True
    """
    if isinstance(trace, (list, tuple)):
        raise TypeError(f"trace is a {type(trace).__name__}: aw.evaluate.attacks scores several texts.")
    specs = by_name(method)
    if len(specs) != 1:
        raise ValueError(f"method has {len(specs)} methods: aw.evaluate.attacks scores several.")
    _require_search(search)
    (result,) = _attacked(trace, specs, words, search)
    return result


@_with_former
@forceable
@documented
def attacks(
    traces: Any,
    explanations: Any,
    *,
    words: Words | None = None,
    search: AttackSearch = _DEFAULT,
) -> Scorecard:
    """Measure how far explanations of texts can be moved while predictions stay, and how far chance does.

        attack, random          1 - Spearman's rho of the attack, and by chance: see `aw.evaluate.attack`
        attack_top, random_top  the share of the three largest elements that are others, likewise

    No number is a method's robustness: the order of methods differs between embeddings and words.

    Args:
        traces: {traces}
        explanations: A name in `aw.methods()`, a pair (name, options), or a function of a trace; a list of
            these, or a mapping from names to them.
        words: Words to put in, or a function that names them: as `aw.evaluate.attack` takes them.
        search: The budget and the other options: an `aw.evaluate.AttackSearch`.
        force: {force}

    Returns:
        A Scorecard [metric, method, 1] over texts. NaN where every change moved the prediction too far.

    Raises:
        ValueError, TypeError: As `aw.evaluate.attack`.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A film of great charm and little plot.")
        >>> short = aw.evaluate.AttackSearch(steps=2, draws=1)
        >>> aw.evaluate.attacks([trace], ["rollout", "saliency"], search=short).metrics
        ('attack', 'random', 'attack_top', 'random_top')
    """
    texts = as_list(traces)
    if not texts:
        raise ValueError("traces is empty: give one or several.")
    specs = {str(name): spec for name, spec in by_name(explanations).items()}
    if not specs:
        raise ValueError("explanations is empty: give at least one method.")
    _require_search(search)
    samples = np.array(
        [
            [_scores(result) for result in _attacked(trace, specs, words, search)]
            for trace in progress(texts, "attacking texts")
        ]
    )
    notes = ["undefined where every change moved the prediction too far"] if np.isnan(samples).any() else []
    by_kind = ("budget", "steps", "draws") if words is None else ("most",)
    options = {name: getattr(search, name) for name in (*by_kind, "tolerance", "seed")}
    return scored(
        samples.transpose(0, 2, 1)[..., None],
        "attacks",
        model=texts[0].model_id,
        metrics=METRICS,
        methods=[*specs],
        notes=notes,
        title="attacks by embeddings" if words is None else "attacks by one word",
        paper=PAPER,
        options=options,
    )


def _scores(result: Attack) -> list[float]:
    if result.best is None:
        return [float("nan")] * len(METRICS)
    return [result.distance, result.chance, result.top_changed, result.chance_top_changed]


def _require_search(search: Any) -> None:
    if not isinstance(search, AttackSearch):
        raise TypeError(f"search takes an aw.evaluate.AttackSearch, not {search!r:.60}.")


def _attacked(
    trace: Any, specs: Mapping[Any, Any], words: Words | None, search: AttackSearch
) -> list[Attack]:
    """Return the attack on each of some methods of a trace."""
    subjects = [subject_of(trace, str(name), spec, search.tolerance) for name, spec in specs.items()]
    if words is None:
        return [by_embeddings(subject, search) for subject in subjects]
    return by_words(subjects, words, search)
