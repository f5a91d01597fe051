"""Sentences are read as claims, and those that are none point at the word."""

from __future__ import annotations

import pytest

import attnwidgets as aw


@pytest.mark.parametrize(
    ("sentence", "causal", "roles", "control"),
    [
        ("head 4.3 is previous token", False, (), None),
        ("head 4.3 is induction more than random", False, (), "random"),
        ("head 4.3 attends from pronoun to antecedent", False, ("pronoun", "antecedent"), None),
        ("head 12.0 attends from a b to c d more than shuffled", False, ("a b", "c d"), "shuffled"),
        ("head 23.4 moves subject to last more than same layer", True, ("subject", "last"), "same layer"),
    ],
)
def test_a_claim_says_what_it_read(sentence, causal, roles, control):
    claim = aw.circuits.claim(sentence)
    assert str(claim) == sentence
    assert (claim.causal, claim.roles, claim.control) == (causal, roles, control)
    assert aw.circuits.claim(sentence.replace(" ", "  \n")) == claim
    assert aw.circuits.claim(f"H{sentence[1:]}.") == claim, "as a sentence is written"


@pytest.mark.parametrize(
    ("sentence", "word", "says"),
    [
        ("head 4.3 atends from a to b", "atends", "Did you mean 'attends'"),
        ("layer 4.3 is induction", "layer", 'expected "head"'),
        ("head 4.3 moves a to b to c", "to c", 'expected "more than", or the end'),
        ("head 4,3 is induction", "4,3", 'such as "4.3"'),
        ("head 4.3 is previos token", "previos", "Did you mean 'previous_token'"),
        ("head 4.3 attends to b", "to", 'expected "from"'),
        ("head 4.3 attends from to b", "to", "expected a role"),
        ("head 4.3 is induction more than othr", "othr", '"same layer"'),
        ("head 4.3 is more than random", "more", "expected a statistic"),
    ],
)
def test_the_caret_stands_under_the_word(sentence, word, says):
    with pytest.raises(aw.circuits.ClaimError) as raised:
        aw.circuits.claim(sentence)
    _, shown, caret, *_ = str(raised.value).split("\n")
    assert shown == sentence
    assert shown[caret.index("^") :].startswith(word)
    assert says in caret


@pytest.mark.parametrize("sentence", ["", "head", "head 4.3", "head 4.3 moves a", "head 4.3 moves a to"])
def test_where_a_sentence_ends_too_soon_the_caret_is_behind_it(sentence):
    with pytest.raises(aw.circuits.ClaimError) as raised:
        aw.circuits.claim(sentence)
    caret = str(raised.value).split("\n")[2]
    assert caret.index("^") == len(sentence) + 1
    with pytest.raises(TypeError, match="takes a sentence"):
        aw.circuits.claim(3)
