from __future__ import annotations

from itertools import chain

import pandas as pd
import pytest
import torch

from attnwidgets.sae.corpus import Corpus, batches, counts_mask
from tests.tracing import tiny

TEXTS = ["the cat sat.", "", "new york, the unbelievable cat!", "a b c"]


@pytest.fixture(scope="module")
def bert():
    return tiny.build(tiny.TEXT["BERT"])


@pytest.fixture(scope="module")
def llama():
    return tiny.build(tiny.TEXT["Llama"])


@pytest.mark.parametrize("context", [3, 5, 100])
def test_no_token_is_lost_or_read_twice(bert, context):
    tokenizer = tiny.wordpiece()
    windows = list(Corpus(bert, tokenizer, TEXTS, context=context).windows())
    for number, text in enumerate(TEXTS):
        read = [
            i
            for window in windows
            if window.text == number
            for i, counts in zip(window.ids, window.counts, strict=True)
            if counts
        ]
        assert read == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert all(len(window.ids) <= context for window in windows)
    assert all(window.ids[0] == tokenizer.cls_token_id for window in windows)
    assert all(window.ids[-1] == tokenizer.sep_token_id for window in windows)


def test_a_decoders_first_token_does_not_count_unless_it_is_a_beginning(llama, bert):
    tokenizer = tiny.byte_level()
    first = next(Corpus(llama, tokenizer, TEXTS).windows())
    assert first.counts[0] is False
    assert all(first.counts[1:])
    whole = next(Corpus(llama, tokenizer, TEXTS, skip_first=False).windows())
    assert all(whole.counts)
    begun = next(Corpus(llama, tokenizer, TEXTS, prepend_bos=True).windows())
    assert begun.ids == (tokenizer.bos_token_id, *first.ids)
    assert begun.counts == (False, *whole.counts)
    assert next(Corpus(bert, tiny.wordpiece(), ["the cat"]).windows()).counts == (False, True, True, False)


def test_given_ids_are_read_as_they_are(bert):
    windows = list(Corpus(bert, tiny.wordpiece(), [[2, 5, 9, 3], torch.tensor([7, 8])]).windows())
    assert [window.ids for window in windows] == [(2, 5, 9, 3), (7, 8)]
    assert windows[0].counts == (False, True, True, False)
    assert [window.ids for window in Corpus(bert, None, [[7, 8, 9]], context=2).windows()] == [(7, 8), (9,)]


def test_rows_of_a_data_set_are_read_as_texts_or_as_ids(bert):
    rows = [{"label": 1, "text": "the cat", "input_ids": [7, 8]}]
    (spelled,) = Corpus(bert, tiny.wordpiece(), iter(rows)).windows()
    assert spelled == next(Corpus(bert, tiny.wordpiece(), ["the cat"]).windows())
    (given,) = Corpus(bert, None, rows).windows()
    assert given.ids == (7, 8)
    with pytest.raises(ValueError, match="without 'text' or 'input_ids'; its columns are 'sentence': rename"):
        list(Corpus(bert, None, [{"sentence": "the cat"}]).windows())
    with pytest.raises(ValueError, match="not a mapping of 'train', 'test'; pass one of them"):
        Corpus(bert, None, {"train": rows, "test": rows})
    with pytest.raises(TypeError, match="texts is a table, not texts; give one of its columns: texts=df"):
        Corpus(bert, None, pd.DataFrame(rows))


@pytest.mark.parametrize("sort", [1, 4])
def test_batches_hold_every_window_once_and_keep_their_size(bert, sort):
    corpus = Corpus(bert, tiny.wordpiece(), TEXTS * 7, context=6)
    windows = list(corpus.windows())
    result = list(batches(iter(windows), 20, sort=sort))
    assert sorted(map(id, chain(*result))) == sorted(map(id, windows))
    assert all(max(len(window.ids) for window in batch) * len(batch) <= 20 for batch in result)
    if sort == 1:
        assert list(chain(*result)) == windows
    inputs = corpus.inputs(result[0])
    mask = counts_mask(result[0], inputs["input_ids"].shape[1], torch.device("cpu"))
    assert inputs["input_ids"][mask].tolist() == [
        i for window in result[0] for i, counts in zip(window.ids, window.counts, strict=True) if counts
    ]
    assert bool((inputs["attention_mask"].bool() | ~mask).all())


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("one string", {}, "a collection of texts, not one string"),
        (["the"], {"context": 2}, "leaves no room for text: it is surrounded by 2 special tokens"),
    ],
)
def test_bad_corpora_are_refused(bert, texts, options, message):
    with pytest.raises(ValueError, match=message):
        Corpus(bert, tiny.wordpiece(), texts, **options)


def test_strings_need_a_tokenizer(bert):
    with pytest.raises(ValueError, match="pass their tokenizer"):
        next(Corpus(bert, None, ["the cat"]).windows())
