"""Comparisons over many texts: by content, as streams, by several workers, through dead workers."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import tracemalloc
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle
import loky
import numpy as np
import pytest
import torch
import transformers

import attnwidgets as aw
from attnwidgets.evaluate import CueProtocol, compare, cue_contribution
from attnwidgets.evaluate.scoring import ScoreCache, Scores, score_shards
from attnwidgets.explanations import Attributions
from tests.explanations.made import random_classifier
from tests.tracing import tiny

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from attnwidgets.evaluate.scoring import Group

# Workers cannot import this module: an installed package may be called "tests" as well.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

WORDS = ("unbelievable", "cat", "the", "sat")
TEXTS = [" ".join(WORDS[(at // 4**index) % 4] for index in range(4)) for at in range(60)]
SOME = TEXTS[:20]  # two shards
METRICS = ["comprehensiveness", "gini"]


def saved(folder: Path, seed: int = 0) -> Path:
    """A classifier and its tokenizer in a folder."""
    model = random_classifier()
    torch.manual_seed(seed)
    with torch.no_grad():
        model.classifier.weight.normal_()
    model.save_pretrained(folder)
    tiny.wordpiece().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    return saved(tmp_path_factory.mktemp("classifier"))


def scores(model: Any, texts: Any = TEXTS, methods: Any = "saliency", **options: Any) -> Any:
    tokenizer = options.pop("tokenizer", None)
    seed = options.pop("seed", 0)
    removal = aw.evaluate.Removal("mask", thresholds=(0.5,), draws=2, seed=seed)
    return compare(methods, METRICS, texts, model, tokenizer, removal=removal, **options)


def equal(first: Any, second: Any) -> bool:
    return all(
        np.array_equal(first[family].samples, second[family].samples, equal_nan=True) for family in first
    ) and set(first) == set(second)


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeoutError where something hangs."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def lengths(trace: Any) -> Attributions:
    return Attributions([len(token) / 7 for token in trace.tokens], axis=trace.axes()[0], stack="self")


def dying(trace: Any, flag: Path) -> Attributions:
    """A method whose process is killed once, at a text in the middle."""
    if trace.text == TEXTS[30] and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return lengths(trace)


# By content


def test_a_model_retrained_in_its_folder_is_another_model(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    first = scores(str(folder), SOME, cache=tmp_path / "scores")
    assert scores(str(folder), SOME, cache=tmp_path / "scores").reused == 20
    saved(folder, seed=7)
    second = scores(str(folder), SOME, cache=tmp_path / "scores")
    assert second.reused == 0
    assert equal(second, scores(str(folder), SOME))
    assert not equal(second, first)


def test_a_model_by_name_is_loaded_once(folder: Path, monkeypatch: Any) -> None:
    loaded: list[str] = []
    kind = transformers.BertForSequenceClassification
    load = kind.from_pretrained

    def counted(name: str, *args: Any, **options: Any) -> Any:
        loaded.append(name)
        return load(name, *args, **options)

    monkeypatch.setattr(kind, "from_pretrained", counted)
    scores(str(folder), SOME)
    assert loaded == [str(folder)]


def test_a_folder_that_was_moved_holds_the_same_model_and_tokenizer(folder: Path, tmp_path: Path) -> None:
    scores(str(folder), SOME, cache=tmp_path / "scores")
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    assert scores(str(moved), SOME, cache=tmp_path / "scores").reused == 20
    model = transformers.BertForSequenceClassification.from_pretrained(moved)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert scores(model, SOME, tokenizer=tokenizer, cache=tmp_path / "scores").reused == 20


def test_a_tokenizer_with_another_word_is_another_one(folder: Path, tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    scores(str(folder), SOME, tokenizer=tokenizer, cache=tmp_path)
    tokenizer.add_tokens(["unbelievable"])  # replaces its pieces
    result = scores(str(folder), SOME, tokenizer=tokenizer, cache=tmp_path)
    assert result.reused == 0
    assert equal(result, scores(str(folder), SOME, tokenizer=tokenizer))


def test_a_method_is_known_by_all_it_depends_on(folder: Path, tmp_path: Path) -> None:
    def scaled(trace: Any, by: Any) -> Attributions:
        values = np.array([len(token) for token in trace.tokens]) ** by
        return Attributions(values, axis=trace.axes()[0], stack="self")

    def run(by: Any) -> Any:
        return scores(str(folder), TEXTS[:4], {"scaled": partial(scaled, by=by)}, cache=tmp_path)

    single = run(np.float64(1.0))
    other = run(np.float64(-1.0))
    assert (single.reused, other.reused, run(np.float64(1.0)).reused) == (0, 0, 4)
    assert not equal(single, other)


def test_another_method_or_text_costs_only_itself(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "scores"
    scores(str(folder), SOME, cache=cache)
    more = scores(str(folder), ["the cat", *SOME], ["saliency", "input_x_gradient"], cache=cache)
    assert more.reused == 20
    whole = scores(str(folder), ["the cat", *SOME], ["saliency", "input_x_gradient"], cache=cache)
    assert whole.reused == 42
    assert equal(whole, more)
    plain = scores(str(folder), ["the cat", *SOME], ["saliency", "input_x_gradient"])
    for family in plain:
        np.testing.assert_allclose(whole[family].samples, plain[family].samples, atol=1e-5)


def test_equal_texts_score_alike_and_are_kept_once(folder: Path, tmp_path: Path) -> None:
    result = scores(str(folder), ["the cat"] * 3, cache=tmp_path)
    assert (result["removal"].samples == result["removal"].samples[:1]).all()
    assert scores(str(folder), ["the cat"] * 3, cache=tmp_path).reused == 3


# As stacks


def test_a_stream_is_read_as_it_is_needed_and_not_kept(folder: Path, tmp_path: Path) -> None:
    read: list[int] = []

    def stack() -> Iterator[dict[str, Any]]:
        for number, text in enumerate(TEXTS):
            read.append(number)
            yield {"text": text, "number": number, "label": number}  # as a data set of Hugging Face does

    def watched(trace: Any) -> Attributions:
        assert len(read) <= 16 * (1 + TEXTS.index(trace.text) // 16) + 1
        return lengths(trace)

    result = scores(str(folder), stack(), {"lengths": watched}, cache=tmp_path)
    assert read == list(range(60))
    assert result.texts == ()
    assert equal(result, scores(str(folder), TEXTS, {"lengths": lengths}))
    with pytest.raises(ValueError, match="dataset is empty"):
        scores(str(folder), iter(()))
    with pytest.raises(ValueError, match=r"dataset\[60\] has an empty text"):
        scores(str(folder), iter([*TEXTS, ""]))


def score_nothing(group: Group[str]) -> Scores:
    """Made-up scores, without a model."""
    values = np.array([[[[len(item) / 7]]] * 3 for item in group.items])
    return Scores(group.keys, group.methods, {"own": values}, ((),) * len(group.items), {"unit": "token"})


def test_many_texts_take_the_memory_of_their_scores() -> None:
    def shards() -> Iterator[list[tuple[str, str]]]:
        for first in range(0, 24_000, 16):
            yield [(f"{at:032x}", f"{at} " + "cat " * 100) for at in range(first, first + 16)]

    tracemalloc.start()
    result = score_shards(shards(), score_nothing, ["a", "b", "c"], ScoreCache(None, ""), 1, desc="scoring")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.values["own"].shape == (24_000, 3, 1, 1)
    assert peak < 3.6e6, "the scores are 0.6 MB, the texts 10 MB"


def test_tasks_that_share_a_folder_leave_nothing_to_do(folder: Path, tmp_path: Path) -> None:
    for task in range(3):
        scores(str(folder), TEXTS[task * 20 : (task + 1) * 20], cache=tmp_path)
    whole = scores(str(folder), cache=tmp_path)
    assert whole.reused == 60
    plain = scores(str(folder))
    np.testing.assert_allclose(whole["removal"].samples, plain["removal"].samples, atol=1e-5)


def test_parts_that_were_scored_apart_merge(folder: Path, tmp_path: Path) -> None:
    whole = scores(str(folder), TEXTS[:48])
    parts = [scores(str(folder), TEXTS[at : at + 16]) for at in (0, 16, 32)]  # as many as a shard has
    result = aw.evaluate.Comparison.merge(parts)
    assert equal(result, whole)
    assert result.texts == whole.texts
    assert repr(result) == repr(whole)
    assert result["removal"].provenance == whole["removal"].provenance
    for at, part in enumerate(parts):
        part["removal"].save(tmp_path / f"{at}")
    saved_parts = [aw.load(tmp_path / f"{at}") for at in range(3)]
    assert np.array_equal(aw.evaluate.merged(saved_parts).samples, whole["removal"].samples)
    second = saved(tmp_path / "model", seed=7)
    for other in (scores(str(folder), TEXTS[:2], seed=1), scores(str(second), TEXTS[:2])):
        with pytest.raises(ValueError, match=r"cards\[1\] has another model or other options"):
            aw.evaluate.Comparison.merge([parts[0], other])
    with pytest.raises(ValueError, match=r"cards\[1\] has methods"):
        aw.evaluate.Comparison.merge([parts[0], scores(str(folder), TEXTS[:2], "input_x_gradient")])
    with pytest.raises(ValueError, match="parts is empty"):
        aw.evaluate.Comparison.merge([])


# By workers


@pytest.mark.usefixtures("warm_workers")
def test_a_killed_process_costs_nothing_but_time(folder: Path, tmp_path: Path) -> None:
    methods = {"a": "saliency", "lengths": partial(dying, flag=tmp_path / "died")}
    with within(120):
        result = scores(str(folder), TEXTS, methods, jobs=2, cache=tmp_path / "scores")
    assert (tmp_path / "died").exists()
    alone = scores(str(folder), TEXTS, {"a": "saliency", "lengths": lengths})
    assert equal(result, alone), "to the last bit"
    assert scores(str(folder), TEXTS, methods, cache=tmp_path / "scores").reused == 120


@pytest.fixture(scope="module")
def pool(warm_workers: None) -> Iterator[Any]:
    with loky.ProcessPoolExecutor(2, env={"OMP_NUM_THREADS": "1"}) as workers:
        yield workers


def test_an_object_travels_to_processes_as_well(folder: Path, pool: Any) -> None:
    model = transformers.BertForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    unnamed = {"lengths": lambda trace: lengths(trace)}  # noqa: PLW0108 - as a notebook's
    with within(120):
        result = scores(model, TEXTS, unnamed, tokenizer=tokenizer, jobs=pool)
    assert equal(result, scores(model, TEXTS, unnamed, tokenizer=tokenizer))


def test_what_does_not_leave_this_process_is_said(folder: Path) -> None:
    model = transformers.BertForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    trace = aw.trace(model, tokenizer, "the cat")
    with pytest.raises(ValueError, match=r"dataset\[0\] is a trace.*jobs=1"):
        scores(None, [trace], jobs=2)
    with aw.ablate_heads(model, (0, 0)), pytest.raises(ValueError, match=r"model is changed .*jobs=1"):
        scores(model, tokenizer=tokenizer, jobs=2)


def test_a_worker_with_other_weights_is_refused(tmp_path: Path, pool: Any) -> None:
    folder = saved(tmp_path / "model", seed=3)

    def texts() -> Iterator[str]:
        yield from TEXTS[:8]
        saved(folder, seed=7)  # after this process has read it, and before the workers do
        yield from TEXTS[8:]

    with within(120), pytest.raises(ValueError, match=r"model '.*' is not the same in a worker"):
        scores(str(folder), texts(), jobs=pool)


CUES = [{"words": text.split(), "target": 3, "cues": [1]} for text in TEXTS[:20]]


def test_cue_contribution_is_shared_by_workers(folder: Path, pool: Any) -> None:
    alone = cue_contribution(str(folder), None, CUES, methods=["attention", "rollout"])
    with within(120):
        result = cue_contribution(str(folder), None, iter(CUES), methods=["attention", "rollout"], jobs=pool)
    np.testing.assert_array_equal(result.samples, alone.samples)


def test_cue_contribution_goes_on_where_it_stopped(folder: Path, tmp_path: Path) -> None:
    counted = tmp_path / "log"

    def uniform(trace: Any) -> np.ndarray:
        with counted.open("a") as file:
            file.write(f"{trace.text}\n")
        n = len(trace.tokens)
        if len(counted.read_text().splitlines()) == 10:
            raise KeyboardInterrupt
        return np.full((2, n, n), 1 / n)

    def run(examples: Any = CUES, **more: Any) -> Any:
        methods = {"uniform": uniform} | more.pop("methods", {})
        return cue_contribution(str(folder), None, examples, methods=methods, cache=tmp_path / "s", **more)

    with pytest.raises(KeyboardInterrupt):
        run()
    result = run()
    assert len(counted.read_text().splitlines()) == 10 + 12, "the first shard of 8 is not done again"
    both = run(iter(CUES), methods={"attention": "attention"})
    assert len(counted.read_text().splitlines()) == 22
    np.testing.assert_array_equal(both.samples[:, :, 0], result.samples[:, :, 0])
    run(protocol=CueProtocol(row="before"))
    assert len(counted.read_text().splitlines()) == 42


@contextmanager
def dask_executor(**options: Any) -> Iterator[Any]:
    """An executor of single-threaded workers, of a cluster that ends with the block."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(threads_per_worker=1, dashboard_address=None, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


def slow_first(trace: Any) -> Attributions:
    """Makes later shards finish before earlier shards."""
    if trace.text in TEXTS[:16]:
        time.sleep(0.2)
    return lengths(trace)


def by_dask(executor: Any, method: Any, model: Any, tokenizer: Any = None) -> Any:
    methods = {"a": "saliency", "lengths": lambda trace: method(trace)}  # noqa: PLW0108 - travels by value
    with within(240):
        return scores(model, TEXTS, methods, tokenizer=tokenizer, jobs=executor)


def test_dask_scores_to_the_bit_what_one_process_does(folder: Path) -> None:
    reader = (
        transformers.BertForSequenceClassification.from_pretrained(folder),
        transformers.AutoTokenizer.from_pretrained(folder),
    )
    alone = scores(str(folder), TEXTS, {"a": "saliency", "lengths": lengths})
    with dask_executor(n_workers=2, processes=False) as executor:
        assert equal(by_dask(executor, slow_first, str(folder)), alone)
        assert equal(by_dask(executor, lengths, *reader), alone), "objects"


@pytest.mark.usefixtures("warm_workers")
def test_a_killed_process_of_dask_costs_nothing_but_time(folder: Path, tmp_path: Path) -> None:
    flag = tmp_path / "died"
    alone = scores(str(folder), TEXTS, {"a": "saliency", "lengths": lengths})
    with dask_executor(n_workers=1) as executor:
        assert equal(by_dask(executor, partial(dying, flag=flag), str(folder)), alone)
    assert flag.exists()
