"""Statistics of features, counted in shards: by any number of workers, in parts, and after interrupts."""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import count

import cloudpickle
import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.sae.corpus_statistics import counting
from tests.tracing import tiny

from . import made

TEXTS = made.CORPUS
OPTIONS = {"context": 20, "examples": 3, "per_interval": 2}


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    monkeypatch.setattr(counting, "TEXTS", 4)


@pytest.fixture(scope="module")
def whole(bert, sae):
    """Text by text, in this process: the reference for everything else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "TEXTS", 4)
        return made.content(aw.feature_stats(*bert, sae, TEXTS, **OPTIONS))


def arrays(stats):
    return stats.to_description()[1]


class Elsewhere(Executor):
    """Runs the last submitted shard first, from its pickled call."""

    _max_workers = 8

    def __init__(self):
        self.waiting, self.ran = [], []

    def submit(self, function, /, *args):
        executor = self

        class Lazy(Future):
            def exception(self, timeout=None):
                while executor.waiting:
                    future, number, call = executor.waiting.pop()
                    executor.ran.append(number)
                    function, args = pickle.loads(call)
                    future.set_result(pickle.loads(pickle.dumps(function(*args))))
                return super().exception(timeout)

        future = Lazy()
        number = len(self.waiting) + len(self.ran)
        self.waiting.append((future, number, cloudpickle.dumps((function, args))))
        return future


def test_any_number_of_workers_in_any_order_count_the_same_bits(bert, sae, whole):
    elsewhere = Elsewhere()
    counted = {
        "a stream": aw.feature_stats(*bert, sae, iter(TEXTS), **OPTIONS),
        "last shard first": aw.feature_stats(*bert, sae, TEXTS, jobs=elsewhere, **OPTIONS),
    }
    with ThreadPoolExecutor(2) as threads:
        counted["threads"] = aw.feature_stats(*bert, sae, TEXTS, jobs=threads, **OPTIONS)
    assert {name: made.content(result) == whole for name, result in counted.items()} == dict.fromkeys(
        counted, True
    )
    assert elsewhere.ran == [5, 4, 3, 2, 1, 0]


def test_model_and_sae_by_name_are_loaded_in_the_workers(sae, tmp_path):
    model, tokenizer = tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    sae.save_pretrained(tmp_path / "sae")
    loaded, folder = tmp_path / "model", tmp_path / "sae"
    named = aw.feature_stats(loaded, None, folder, TEXTS, jobs=Elsewhere(), **OPTIONS)
    given = aw.feature_stats(model, tokenizer, aw.SAE.from_pretrained(folder), TEXTS, **OPTIONS)
    assert named.tokens == given.tokens
    for name in ("count", "sums", "top.ids", "drawn.ids"):
        np.testing.assert_array_equal(arrays(named)[name], arrays(given)[name])


def test_a_model_that_is_changed_here_is_not_run_unchanged_elsewhere(bert, sae):
    with aw.ablate_heads(bert[0], [(0, 0)]):
        aw.feature_stats(*bert, sae, TEXTS[:5], **OPTIONS)
        with pytest.raises(ValueError, match="that workers would not have: use jobs=1"):
            aw.feature_stats(*bert, sae, TEXTS, jobs=2, **OPTIONS)


def test_parts_that_were_saved_are_merged_to_the_same_bits(bert, sae, whole, tmp_path):
    """In twos, as tasks of an array job count them, each knowing nothing of the others."""
    paths = []
    for begin in range(0, len(TEXTS), 8):
        part = aw.feature_stats(*bert, sae, TEXTS[begin : begin + 8], **OPTIONS)
        paths.append(part.save(tmp_path / f"{begin}.safetensors"))
    assert made.content(aw.results.FeatureStats.merge(paths)) == whole
    first, *rest = map(aw.load, paths)
    before = made.content(first)
    again = aw.results.FeatureStats.merge([first, aw.results.FeatureStats.merge(rest)])
    assert made.content(again) == whole
    assert made.content(first) == before, "parts stay as they were"
    assert again.feature(19) == aw.load(again.save(tmp_path / "whole")).feature(19)


def test_parts_cut_in_any_way_hold_the_same_counts_and_contexts(bert, sae):
    whole = aw.feature_stats(*bert, sae, TEXTS, **OPTIONS)
    parts = [aw.feature_stats(*bert, sae, TEXTS[i::3], **OPTIONS) for i in range(3)]
    parts = [part.named({i: f"feature of part {i}", 9: f"nine of {i}"}) for i, part in enumerate(parts)]
    result = aw.results.FeatureStats.merge(iter(parts))
    assert (result.tokens, result.facts["texts"]) == (whole.tokens, len(TEXTS))
    assert result.names == {
        0: "feature of part 0",
        1: "feature of part 1",
        2: "feature of part 2",
        9: "nine of 0",
    }
    # An activation may lie at the threshold.
    assert np.abs(arrays(result)["count"] - arrays(whole)["count"]).max() <= 1
    order = [*TEXTS[0::3], *TEXTS[1::3], *TEXTS[2::3]]
    same = 0
    for j in range(20):
        drawn = [
            {e.ids for part in stats.feature(j).intervals for e in part.examples} for stats in (whole, result)
        ]
        same += drawn[0] == drawn[1]
        for example in result.feature(j).top:
            ids = bert[1](order[example.text], add_special_tokens=False)["input_ids"]
            assert ids[example.place] == example.ids[example.at], "texts are numbered through the parts"
    assert same >= 18


def test_what_cannot_be_merged_is_refused_in_words(bert, sae):
    model, tokenizer = bert
    part = aw.feature_stats(*bert, sae, TEXTS[:4], **OPTIONS)

    def refused(other, match, error=ValueError):
        with pytest.raises(error, match=match):
            aw.results.FeatureStats.merge([part, other])

    with torch.no_grad():
        weights = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", initializer_range=0.3))
        weights.bert.encoder.layer[0].output.dense.weight[0, 0] += 1
    same = aw.feature_stats(
        *bert, sae.replaced(model_name="other", origin="elsewhere"), TEXTS[4:6], **OPTIONS
    )
    assert aw.results.FeatureStats.merge([part, same]).facts["texts"] == 6
    refused(aw.feature_stats(weights, tokenizer, sae, TEXTS[4:6], **OPTIONS), "of another model's weights")
    refused(
        aw.feature_stats(*bert, made.sae(d_in=32, site=made.SITE), TEXTS[:4], **OPTIONS), "of another SAE"
    )
    refused(aw.feature_stats(*bert, sae, TEXTS[4:6], features=[1, 2], **OPTIONS), "of other features")
    refused(aw.feature_stats(*bert, sae, TEXTS[4:6], **OPTIONS | {"seed": 1}), r"of other options \(seed\)")
    refused(aw.feature_stats(model, None, sae, [[5, 9, 11]], **OPTIONS), "of another tokenizer")
    refused("no such file", "does not exist", FileNotFoundError)
    refused(3, r"parts\[1\] must be FeatureStats or their file, not int", TypeError)
    older = {name: array for name, array in arrays(part).items() if name != "drawn.key"}
    refused(aw.results.FeatureStats(older, part.facts), "saved by an earlier version")
    with pytest.raises(ValueError, match="parts is empty"):
        aw.results.FeatureStats.merge([])


@pytest.mark.parametrize(("after", "files"), [(2, 0), (9, 1), (12, 2), (20, 2)])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    bert, sae, whole, tmp_path, monkeypatch, after, files
):
    """Two shards' files are merged with those before, so that the folder does not grow with the corpus."""
    monkeypatch.setattr(counting, "FILES", 2)
    folder = tmp_path / "counts"
    with pytest.raises(made.StopError):
        aw.feature_stats(*bert, sae, made.interrupted(TEXTS, after), checkpoint=folder, **OPTIONS)
    assert len(list(folder.glob("*.safetensors"))) == files
    numbers = []
    call = counting.ShardCounter.__call__
    monkeypatch.setattr(
        counting.ShardCounter,
        "__call__",
        lambda self, shard: numbers.append(shard.number) or call(self, shard),
    )
    resumed = aw.feature_stats(*bert, sae, iter(TEXTS), checkpoint=folder, **OPTIONS)
    assert made.content(resumed) == whole
    assert numbers == list(range(after // 4, 6)), "counted texts are not counted again"
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_two_processes_go_on_from_a_checkpoint_to_the_same_bits(bert, sae, whole, tmp_path):
    with pytest.raises(made.StopError):
        aw.feature_stats(*bert, sae, made.interrupted(TEXTS, 10), checkpoint=tmp_path / "counts", **OPTIONS)
    (tmp_path / "counts" / "notes.txt").write_text("mine")
    result = aw.feature_stats(*bert, sae, TEXTS, checkpoint=tmp_path / "counts", jobs=2, **OPTIONS)
    assert made.content(result) == whole
    assert [path.name for path in (tmp_path / "counts").iterdir()] == ["notes.txt"]


def test_a_corpus_that_changed_where_shards_are_merged_is_refused(bert, sae, tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "FILES", 2)
    options = OPTIONS | {"checkpoint": tmp_path / "counts"}
    with pytest.raises(made.StopError):
        aw.feature_stats(*bert, sae, made.interrupted(TEXTS, 9), **options)
    with pytest.raises(ValueError, match=r"of other texts .texts 4 to 7 differ"):
        aw.feature_stats(*bert, sae, [*TEXTS[:5], "x", *TEXTS[6:]], **options)
    with pytest.raises(ValueError, match=r"of other texts .the corpus is shorter"):
        aw.feature_stats(*bert, sae, TEXTS[:4], **options)
    (tmp_path / "counts" / "merged.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(ValueError, match=r"merged\.safetensors' is damaged; remove it"):
        aw.feature_stats(*bert, sae, TEXTS, **options)


def test_a_checkpoint_of_something_else_is_refused_by_name(bert, sae, tmp_path):
    model, tokenizer = bert
    folder = tmp_path / "counts"
    options = OPTIONS | {"checkpoint": folder}
    with pytest.raises(made.StopError):
        aw.feature_stats(*bert, sae, made.interrupted(TEXTS, 9), **options)

    def refused(match, *given, **changed):
        with pytest.raises(ValueError, match=match):
            aw.feature_stats(*(given or (model, tokenizer, sae, TEXTS)), **options | changed)

    weights = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", initializer_range=0.3))
    with torch.no_grad():
        weights.bert.encoder.layer[0].output.dense.weight[0, 0] += 1
    words = tiny.wordpiece()
    words.add_tokens(["newer"])
    refused(
        "is of another model's weights .* remove it, or name another folder", weights, tokenizer, sae, TEXTS
    )
    refused("is of another tokenizer;", model, words, sae, TEXTS)
    refused("is of another SAE;", model, tokenizer, sae.fold_decoder_norm(), TEXTS)
    refused(r"is of other options \(context, seed\);", seed=1, context=15)
    refused("is of other features;", features=[1])
    refused("is of another site;", site="blocks.0.hook_resid_post")
    refused("is of other texts .texts 4 to 7 differ", model, tokenizer, sae, [*TEXTS[:5], "x", *TEXTS[6:]])
    with aw.ablate_heads(model, [(0, 0)]):
        refused("another model's weights .or other hooks")
    (folder / "shard-000001.safetensors").write_bytes(b"x" * 40)
    refused("shard-000001.safetensors' is damaged; remove it, and its texts will be counted again")
    (folder / "statistics.json").write_bytes(b"x" * 40)
    refused("is damaged")


def test_what_is_no_checkpoint_is_refused(bert, sae, tmp_path):
    (tmp_path / "old").write_bytes(b"x" * 40)
    with pytest.raises(
        ValueError, match=r"is a file, written by an earlier version.*remove it, or name a folder"
    ):
        aw.feature_stats(*bert, sae, TEXTS, checkpoint=tmp_path / "old")
    assert (tmp_path / "old").exists()
    with pytest.raises(ValueError, match="a folder with other contents; name another"):
        aw.feature_stats(*bert, sae, TEXTS, checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="folder that does not exist"):
        aw.feature_stats(*bert, sae, TEXTS, checkpoint=tmp_path / "not" / "there")


def test_a_stream_is_read_as_it_is_counted(bert, sae, monkeypatch):
    read, ahead = count(1), []
    latest = 0
    call = counting.ShardCounter.__call__

    def watched(self, shard):
        ahead.append(latest - 4 * shard.number)
        return call(self, shard)

    def stream():
        nonlocal latest
        for text in TEXTS:
            latest = next(read)
            yield {"text": text, "label": 0}

    monkeypatch.setattr(counting.ShardCounter, "__call__", watched)
    result = aw.feature_stats(*bert, sae, stream(), **OPTIONS)
    assert result.facts["texts"] == len(TEXTS)
    assert max(ahead) <= 4, "the texts of a shard"


def test_shards_end_after_many_characters_too(monkeypatch):
    monkeypatch.setattr(counting, "CHARACTERS", 10)
    texts = ["abc", "a long text", "x", "y", "z", "x", "y", [1, 2, 3]]
    shards = list(counting.shards_of(texts, spelled=True))
    assert [shard.texts for shard in shards] == [
        ("abc", "a long text"),
        ("x", "y", "z", "x"),
        ("y", (1, 2, 3)),
    ]
    assert [shard.name for shard in shards] == ["texts 0 to 1", "texts 2 to 5", "texts 6 to 7"]
    assert counting.shards_in(texts) == 3
    assert counting.shards_in(iter(texts)) is None
    assert shards[2].digest != next(counting.shards_of(["y", "(1, 2, 3)"], spelled=True)).digest


def test_activations_that_are_no_numbers_are_refused(bert, sae):
    model = tiny.build(tiny.TEXT["BERT"])
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight[0] = float("nan")
    with pytest.raises(ValueError, match=r"activations at 'blocks\.1\.hook_resid_post' are NaN or infinite"):
        aw.feature_stats(model, bert[1], sae, TEXTS)


def test_counts_of_a_model_that_is_steered_are_of_another_model(bert, sae, tmp_path):
    """Changes of hooks are no weights, and stay in their process."""
    options = OPTIONS | {"checkpoint": tmp_path / "counts"}
    with aw.steer(bert[0], sae, 4, 3.0, maximum=1.0):
        steered = made.content(aw.feature_stats(*bert, sae, TEXTS, **OPTIONS))
        with pytest.raises(made.StopError):
            aw.feature_stats(*bert, sae, made.interrupted(TEXTS, 9), **options)
        with pytest.raises(ValueError, match=r"has hooks \(.*Hook\._after.*that workers would not have: use"):
            aw.feature_stats(*bert, sae, TEXTS, jobs=2, **OPTIONS)
    with pytest.raises(ValueError, match=r"is of another model.s weights \(or other hooks.*; remove it"):
        aw.feature_stats(*bert, sae, TEXTS, **options)
    with (
        aw.steer(bert[0], sae, 4, 2.0, maximum=1.0),
        pytest.raises(ValueError, match=r"is of another model.s weights \(or other hooks.*; remove it"),
    ):
        aw.feature_stats(*bert, sae, TEXTS, **options)
    with aw.steer(bert[0], sae, 4, 3.0, maximum=1.0):
        assert made.content(aw.feature_stats(*bert, sae, TEXTS, **options)) == steered
