"""Texts are read from lists, columns of tables, arrays and generators; a table names its column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import attnwidgets as aw
from attnwidgets.concepts.batches import texts_of
from tests.tracing import tiny
from tests.tracing.test_answers import made

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = ["fadeb", "hagcb", "cbdec"]
TABLE = pd.DataFrame({"number": [1, 2, 3], "review": TEXTS})

FORMS: dict[str, Callable[[], Any]] = {
    "column": lambda: TABLE.review,
    "column of strings": lambda: TABLE.review.astype("string"),
    "array of objects": TABLE.review.to_numpy,
    "array of strings": lambda: np.array(TEXTS),
    "generator": lambda: (f"{text}" for text in TEXTS),
    "mapping's values": lambda: dict(enumerate(TEXTS)).values(),
}


@pytest.fixture(scope="module")
def model() -> Any:
    return aw.zoo.induction(letters="abcdefgh", length=16)


def taking(model: Any) -> dict[str, Callable[[Any], Any]]:
    """Public functions of texts, each as a function of the texts alone."""
    induction, tokenizer = model
    return {
        "trace": lambda texts: [trace.text for trace in aw.trace(induction, tokenizer, texts)],
        "trace without a tokenizer": lambda texts: [
            trace.text for trace in aw.trace(_Pipeline(induction, tokenizer), texts)
        ],
        "explore": lambda texts: [trace.text for trace in aw.explore(induction, tokenizer, texts).traces],
        "attention_influence": lambda texts: list(
            aw.circuits.attention_influence(induction, tokenizer, texts, (1, 0), draws=1).texts
        ),
        "check_claims": lambda texts: [
            text.text
            for text in aw.circuits.check_claims(
                induction, tokenizer, "head 0.0 is previous token", texts, resamples=100
            )
            .results[0]
            .texts
        ],
        "concepts": lambda texts: texts_of(texts, "states"),
    }


class _Pipeline:
    """As a pipeline of transformers, which has a tokenizer."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["trace", "trace without a tokenizer", "explore", "concepts"])
def test_every_collection_of_texts_is_read(model: Any, name: str, form: str) -> None:
    assert taking(model)[name](FORMS[form]()) == TEXTS


@pytest.mark.parametrize(
    "name",
    ["trace", "trace without a tokenizer", "explore", "attention_influence", "check_claims", "concepts"],
)
def test_a_table_is_refused_with_its_column_of_texts(model: Any, name: str) -> None:
    for table in (TABLE, TABLE[["review"]]):
        with pytest.raises(TypeError, match=r"is a table, not texts; .*=df\['review'\]"):
            taking(model)[name](table)


def test_sets_of_concepts_are_columns_too() -> None:
    model, tokenizer = aw.demo_model("classifier")
    column = pd.Series([text.text for text in aw.demo_texts("train")[:24]])
    some, others, random = column[:6], column[6:12], column[12:]
    options: dict[str, Any] = {"target": "positive", "layers": [3]}
    options["test"] = aw.concepts.ConceptTest(runs=2, permutations=10)
    columns = aw.concepts.tcav(model, tokenizer, {"some": some}, others, random=random, **options)
    lists = aw.concepts.tcav(model, tokenizer, {"some": [*some]}, [*others], random=[*random], **options)
    pd.testing.assert_frame_equal(columns.to_dataframe(), lists.to_dataframe())


def test_seconds_of_pairs_are_read_alike() -> None:
    model, tokenizer = aw.demo_model("encoder")
    given = pd.DataFrame({"a": ["One.", "Two."], "b": ["Three.", "Four."]})
    traces = aw.trace(model, tokenizer, given.a, text_pair=given.b)
    assert [trace.text for trace in traces] == ["One.\nThree.", "Two.\nFour."]
    with pytest.raises(TypeError, match=r"text_pair=df\['b'\]"):
        aw.trace(model, tokenizer, list(given.a), text_pair=given[["b"]])


@pytest.mark.parametrize("kind", ["array", "column", "generator", "tuple"])
def test_several_texts_are_taken_as_people_hold_them(kind: str) -> None:
    texts = ["the cat sat.", "a new york cat."]
    given: Any = {
        "array": lambda: np.array(texts),
        "column": lambda: pd.Series(texts),
        "generator": lambda: (text for text in texts),
        "tuple": lambda: tuple(texts),
    }[kind]()
    traces = aw.trace(made("Bert", "SequenceClassification"), tiny.wordpiece(), given)
    assert [trace.text for trace in traces] == texts
