"""aw.circuits.check_claims: claims about heads, checked on texts and compared with controls.

Claims are parsed first (`grammar.py`), and with them all roles, controls and numbers are validated before the
model runs. Every text is traced once; each claim reads a value of its head and of its controls from the trace
(`evidence.py`), or a reason why the text has none. `_result` turns the values of all texts into means and p
values, and `_judged` adjusts these for the number of claims and adds verdicts (`verdicts.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import deprecated, require_choice
from attnwidgets._progress import progress
from attnwidgets._significance import holm
from attnwidgets.circuits.claims.evidence import (
    REQUIRED,
    InText,
    LeftOut,
    MinimalPair,
    Others,
    moved,
    observed,
)
from attnwidgets.circuits.claims.grammar import CONTROLS, Claim, Control, claim
from attnwidgets.circuits.claims.report import ClaimReport, ClaimResult, ClaimText
from attnwidgets.circuits.claims.roles import Roles
from attnwidgets.circuits.claims.verdicts import Bootstrap, verdict_of
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.tracing.recording.wrappers import are_second
from attnwidgets.tracing.text.given_texts import listed_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace

_PAIR = "pairs are (clean, corrupt), (clean, corrupt, answer, other answer), or a dict with these names"
_TWO, _FOUR = 2, 4
_FEWEST = 100  # bootstrap samples


def check_claims(
    model: Any,
    tokenizer: Any,
    claims: Iterable[Claim | str] | Claim | str,
    corpus: Iterable[Any],
    *,
    roles: Mapping[str, Any] | None = None,
    control: Control | None = None,
    margin: float = 0.1,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> ClaimReport:
    """Check claims about heads on texts, each compared with its controls.

    A text gives a number: the statistic ("is"); the share of attention from the tokens of a role that goes to
    those of the other, as a mean over the former ("attends"); the share of attention that goes to other keys
    without the output of a component in them, with norms recomputed ("looks"); or the share of the answer
    that comes back as the head is patched at the tokens of the second role ("moves"; the texts differ in the
    first role only). A claim holds if the mean over texts of this number, less its control's, is above the
    margin: outside a two-sided bootstrap interval over texts. It fails if it is below, and is undecided
    otherwise. For several claims intervals are as wide as Holm's correction asks.

    "attends" must also exceed the attention of other tokens of the text to keys at the same distance, where
    there are any: a head that looks at positions, not at roles, fails. "looks" must also exceed what other
    heads below, or other MLPs, make the head lose on average.

    Args:
        model: A model.
        tokenizer: Its tokenizer.
        claims: A claim or sentence, or several of them.
        corpus: Texts. For "moves": pairs (clean, corrupt), (clean, corrupt, answer, other answer), or a dict
            with the names clean, corrupt, target, foil; answers are the model's predictions by default. Pairs
            of unequal length, or whose answers the model does not predict, are left out and counted.
        roles: Definitions of the roles, by name: a function of a token's text that returns whether it has the
            role, a regular expression (its first group, if it has any), or for every text of the corpus a
            span (start, end) in characters, a list of spans, a word of it, or None.
        control: "same layer" (the mean of the other heads of the layer), "random" (of 20 heads of all
            layers), or "shuffled" (the same head, an equal number of other tokens; for "attends"). By default
            the control that the sentence names, else "same layer".
        margin: By how much the head must exceed its control, in the unit of the number.
        level: Confidence of the intervals.
        resamples: Number of bootstrap samples, at least 100.
        seed: Seed of the bootstrap and of the random heads.

    Returns:
        ClaimReport: `report.verdict` of a single claim, `report["head 4.3 ..."]`, `report.to_dataframe()`;
        printed, the verdicts with their numbers and the texts that speak most against them.

    Raises:
        ClaimError: If a sentence is not a claim.
        ValueError: If claims or texts are empty, a claim is made twice, a role is not explained or absent
            from all texts, the head does not exist, an option is unknown or out of range, or a text cannot
            be read (the message names its number).
        TypeError: If a text or a pair has another form.

    Source: this package; Efron and Tibshirani 1993 (bootstrap); Hesterberg 2015, section 3.3 (intervals of
    few texts); Holm 1979.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> sentences = ["head 0.0 is previous token", "head 1.1 is previous token"]
        >>> report = aw.circuits.check_claims(model, tokenizer, sentences, ["fadeb", "hagcb"] * 4)
        >>> [result.verdict for result in report]
        ['holds', 'fails']
    """
    if are_second(tokenizer, claims):
        deprecated("check_claims(model, tokenizer, claims, corpus) takes the claims third now")
        shifted: Any = (model, tokenizer, claims)
        claims, model, tokenizer = shifted
    parsed = _parsed_claims(claims)
    require_choice("control", control, (None, *CONTROLS))
    _require_numbers(margin, level, resamples)
    if isinstance(corpus, str):
        raise TypeError("corpus is one text; give a list of texts.")
    items = listed_texts(corpus, "corpus")
    if not items:
        raise ValueError("corpus is empty: pass some texts.")
    bootstrap = Bootstrap(resamples, seed)
    needed = bootstrap.fewest(len(parsed), level)
    pairs = [_pair(item, number) for number, item in enumerate(items)] if parsed[0].causal else None
    texts = [pair.clean for pair in pairs] if pairs else [_text(item, at) for at, item in enumerate(items)]
    roles_of_texts = Roles(
        roles, list(dict.fromkeys(name for entry in parsed for name in entry.roles)), len(texts)
    )
    controls = [_control(entry, control) for entry in parsed]
    others: list[Others] = []
    evidence: list[list[InText | str]] = [[] for _ in parsed]

    @lru_cache(2)  # a pair often goes on with a text of the last
    def traced(text: str) -> Trace:
        return record(model, tokenizer, text)

    for number, text in enumerate(progress(texts, "checking claims")):
        with _named(number):
            trace = traced(text)
            corrupt = traced(pairs[number].corrupt) if pairs else trace
        if not others:
            sizes = [trace.n_heads(None, layer) for layer in trace.layers()]
            others = [Others.of(entry, sizes, seed) for entry in parsed]
        for entry, compared, outcome in zip(parsed, others, evidence, strict=True):
            pair = pairs[number] if pairs else None
            with _named(number):
                outcome.append(
                    _evidence_of(entry, compared, roles_of_texts, trace, corrupt, tokenizer, number, pair)
                )
    shown = [(text, "", ()) for text in texts]
    if pairs:
        shown = [(pair.clean, pair.corrupt, pair.answers) for pair in pairs]
    results = [
        _result(entry, compared, of_texts, chosen, shown, bootstrap, margin, level)
        for entry, compared, of_texts, chosen in zip(parsed, others, evidence, controls, strict=True)
    ]
    return ClaimReport(
        [result._replace(needed=needed) for result in _judged(results, level)],
        margin=margin,
        level=level,
        model=trace.model,
        tokenizer=trace.tokenizer,
        provenance={
            "options": {"resamples": resamples, "seed": seed},
            "model": trace.model_id,
            "paper": "Efron and Tibshirani 1993; Hesterberg 2015; Holm 1979",
            "notes": "",
        },
    )


def _parsed_claims(claims: Iterable[Claim | str] | Claim | str) -> list[Claim]:
    """Return parsed claims: distinct, and either all of them causal or none."""
    several = [claims] if isinstance(claims, (str, Claim)) else claims
    parsed = [claim(item) if isinstance(item, str) else item for item in several]
    if not parsed:
        raise ValueError("claims is empty.")
    twice = next((str(item) for item, count in Counter(parsed).items() if count > 1), "")
    if twice:
        raise ValueError(f"claims holds {twice!r} twice.")
    if len({item.causal for item in parsed}) > 1:
        raise ValueError(
            "claims that move something are checked on pairs, the others on texts: call it twice."
        )
    return parsed


def _require_numbers(margin: float, level: float, resamples: int) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}.")
    if not isinstance(margin, (int, float)) or not np.isfinite(margin):
        raise ValueError(f"margin must be a number, in the unit of what is measured, not {margin!r}.")
    if resamples < _FEWEST:
        raise ValueError(f"resamples must be {_FEWEST} or more, not {resamples}.")


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Add the number of the text to an error about it."""
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:  # of the model
            raise
        raise ValueError(f"corpus[{number}]: {error}") from error


def _evidence_of(
    entry: Claim,
    others: Others,
    roles: Roles,
    trace: Trace,
    corrupt: Trace,
    tokenizer: Any,
    number: int,
    pair: MinimalPair | None,
) -> InText | str:
    """Return the evidence of a text, or of a pair with this clean text; or the reason why it has none."""
    try:
        if pair is None:
            return observed(entry, others, roles, trace, tokenizer, number)
        return moved(entry, others, roles, pair, trace, corrupt, tokenizer, number)
    except LeftOut as reason:
        return str(reason)


def _text(item: Any, number: int) -> str:
    if not isinstance(item, str):
        raise TypeError(
            f"corpus[{number}] is a {type(item).__name__}, not a text (pairs are for claims that something "
            "moves)."
        )
    return item


def _pair(item: Any, number: int) -> MinimalPair:
    if isinstance(item, MinimalPair):
        return item
    try:
        if isinstance(item, Mapping):
            return MinimalPair(**item)
        if isinstance(item, (tuple, list)) and len(item) in (_TWO, _FOUR):
            return MinimalPair(*item)
    except TypeError as error:
        raise TypeError(f"corpus[{number}] is not a pair: {error}; {_PAIR}.") from error
    raise TypeError(f"corpus[{number}] is a {type(item).__name__} and not a pair; {_PAIR}.")


def _control(entry: Claim, control: Control | None) -> Control:
    if control and entry.control and control != entry.control:
        raise ValueError(f"{str(entry)!r} says its control, and control is {control!r}; leave one out.")
    chosen: Control = entry.control or control or "same layer"
    if chosen == "shuffled" and entry.predicate != "attends":
        raise ValueError(f'control "shuffled" is for "attends from", and not for {str(entry)!r}.')
    return chosen


def _result(
    entry: Claim,
    others: Others,
    evidence: Sequence[InText | str],
    control: Control,
    shown: Sequence[tuple[str, str, tuple[Any, ...]]],
    bootstrap: Bootstrap,
    margin: float,
    level: float,
) -> ClaimResult:
    """Return the result of a claim, with the verdict of a claim that is checked alone."""
    used = [(at, text) for at, text in enumerate(evidence) if isinstance(text, InText)]
    reasons = [text for text in evidence if isinstance(text, str)]
    if not used:
        counts = ", ".join(f"{why} ({count})" for why, count in Counter(reasons).most_common())
        raise ValueError(f"{str(entry)!r} has no text to be checked on; of {len(evidence)}: {counts}.")
    values = np.array([text.value for _, text in used])
    heads = np.array([text.heads for _, text in used]).reshape(len(used), -1)
    baselines = {name: np.array([text.baselines[name] for _, text in used]) for name in used[0][1].baselines}
    if control == "shuffled":
        compared = baselines["shuffled"]
    else:
        members = list(others.groups[control])
        # A layer with a single head has no other heads: the head is compared with 0.
        compared = heads[:, members].mean(axis=1) if members else np.zeros(len(values))
    required = {control: compared} | {name: baselines[name] for name in REQUIRED if name in baselines}
    above, below = [], []
    for against in required.values():
        defined = ~np.isnan(against)
        if defined.any():
            difference = values[defined] - against[defined]
            above.append(bootstrap.above(difference, margin))
            below.append(bootstrap.below(difference, margin))
    difference = (values - compared)[~np.isnan(compared)]
    return ClaimResult(
        claim=str(entry),
        causal=entry.causal,
        unit=_unit(entry),
        verdict="undecided",
        control=control,
        mean=float(values.mean()),
        interval=bootstrap.interval(values, level),
        difference=float(difference.mean()) if len(difference) else float("nan"),
        difference_interval=bootstrap.interval(difference, level),
        # It must exceed every control, and fails if it falls below any of them.
        p_holds=max(above, default=1.0),
        p_fails=min(1.0, len(below) * min(below, default=1.0)),
        heads={
            name: tuple((*others.heads[position], float(heads[:, position].mean())) for position in members)
            for name, members in others.groups.items()
        },
        baselines={name: _mean(numbers) for name, numbers in baselines.items()},
        texts=tuple(
            ClaimText(
                at, *shown[at][:2], text.value, float(compared[row]), text.source, text.target, shown[at][2]
            )
            for row, (at, text) in enumerate(used)
        ),
        given=len(evidence),
        left_out=tuple(Counter(reasons).most_common()),
    )


def _mean(numbers: NDArray[np.float64]) -> float:
    defined = numbers[~np.isnan(numbers)]
    return float(defined.mean()) if len(defined) else float("nan")


def _unit(one: Claim) -> str:
    if one.predicate == "is":
        return one.statistic.replace("_", " ")
    if one.predicate == "looks":
        return f"attention lost without {one.writer} in the keys"
    return "share of the answer given back" if one.causal else "share of attention"


def _judged(results: Sequence[ClaimResult], level: float) -> list[ClaimResult]:
    """Return results with verdicts that hold for all of them together."""
    adjusted = holm([min(result.p_holds, result.p_fails) for result in results]).tolist()
    judged = []
    for result, p in zip(results, adjusted, strict=True):
        holds, fails = (p, 1.0) if result.p_holds <= result.p_fails else (1.0, p)
        judged.append(result._replace(verdict=verdict_of(holds, fails, level)))
    return judged
