"""On every compiled model of the zoo claims about its program hold, and false claims fail."""

from __future__ import annotations

import random

import pytest

import attnwidgets as aw

COUNT = 12


def by_place(model):
    """Texts of six letters, and their third letter."""
    letters = "abcd"
    rng = random.Random(0)
    return model, ["".join(rng.choices(letters, k=6)) for _ in range(COUNT)], {"third": r"^..(.)"}


def brackets():
    """Five pairs after a bracket that stays open."""
    rng = random.Random(0)
    texts = ["(" + "".join(rng.choices(["[]", "()"], k=5)) for _ in range(COUNT)]
    return aw.zoo.dyck(), texts, {"open": r"^(.)"}


def counted():
    """Eight letters, of which the last stood four times before."""
    texts = []
    for number in range(COUNT):
        rng = random.Random(number)
        last, *others = rng.sample("abcdefgh", 5)
        texts.append("".join(rng.sample([last] * 4 + others, 8)) + last)
    roles = {"same": [[(at, at + 1) for at in range(8) if text[at] == text[-1]] for text in texts]}
    roles["other"] = [[(at, at + 1) for at in range(8) if text[at] != text[-1]] for text in texts]
    return aw.zoo.histogram("same", length=10), texts, roles


def links():
    """Four pairs of letters, two of which lead on from the last letter, in every order."""
    texts, first, second = [], [], []
    for number in range(COUNT):
        rng = random.Random(number)
        a, b, c, *others = rng.sample("abcdefgh", 7)
        pairs = [a + b, b + c, "".join(others[:2]), "".join(others[2:])]
        rng.shuffle(pairs)
        texts.append("".join(pairs) + a)
        for role, pair in ((first, a + b), (second, b + c)):
            at = 2 * pairs.index(pair) + 1
            role.append((at, at + 1))
    return aw.zoo.two_hop(), texts, {"hop": first, "second hop": second}


CASES = {
    "additive": (
        lambda: by_place(aw.zoo.additive()),
        ["head 0.2 attends from last to third"],
        ["head 0.3 attends from last to third", "head 0.2 is previous token"],
    ),
    "negation": (
        lambda: by_place(aw.zoo.negation()),
        ["head 0.2 attends from last to third"],
        ["head 0.3 attends from last to third", "head 0.5 attends from last to third more than random"],
    ),
    "dyck": (brackets, ["head 1.0 attends from last to open"], ["head 0.0 attends from last to open"]),
    "histogram": (counted, ["head 0.0 attends from last to same"], ["head 0.0 attends from last to other"]),
    "two_hop": (
        links,
        [
            "head 0.0 is previous token",
            "head 1.0 attends from last to hop",
            "head 2.0 attends from last to second hop",
        ],
        ["head 2.0 attends from last to hop", "head 1.0 attends from last to second hop"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_true_claims_hold_and_false_ones_fail(name):
    made, true, false = CASES[name]
    model, texts, roles = made()
    report = aw.circuits.check_claims(*model, [*true, *false], texts, roles=roles)
    outcome = {result.claim: result.verdict for result in report}
    assert outcome == dict.fromkeys(true, "holds") | dict.fromkeys(false, "fails")


@pytest.mark.parametrize(("head", "verdict"), [("0.2", "holds"), ("0.3", "fails"), ("0.7", "fails")])
def test_a_letter_is_moved_by_the_head_of_its_place_only(head, verdict):
    pairs = [
        (f"{a}{b}a{c}", f"{a}{b}h{c}") for a, b, c in ("ddf", "dfe", "eed", "edf", "fdd", "fed", "dee", "ede")
    ]
    claim = aw.circuits.claim(f"head {head} moves third to last")
    report = claim.check(*aw.zoo.additive(), pairs, roles={"third": r"^..(.)"})
    assert report.verdict == verdict
