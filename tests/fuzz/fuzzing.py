"""Runs the fuzzers: seeded cases, checks of refusals, and fingerprints of models.

AW_FUZZ_SECONDS=60 gives each fuzzer a minute instead of a fixed number of cases, AW_FUZZ_SEED=7 generates
other cases, and AW_FUZZ_CASE=123 runs a case alone; the message of a failure names its case.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
import traceback
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

import attnwidgets as aw
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
OURS = Path(aw.__file__).parent


def fuzz(case: Callable[[random.Random], None], cases: int) -> None:
    """Run a case repeatedly, each time with its own random numbers.

    Args:
        case: Makes a strange input from a random number generator, and asserts invariants of any input.
        cases: Number of cases of a whole run, if no time is given.
    """
    seed = os.environ.get("AW_FUZZ_SEED", "0")
    alone = os.environ.get("AW_FUZZ_CASE")
    seconds = float(os.environ.get("AW_FUZZ_SECONDS", "0"))
    ends = time.monotonic() + seconds
    for number in (int(alone),) if alone else count() if seconds else range(examples(cases)):
        if seconds and time.monotonic() > ends:
            break
        try:
            case(random.Random(f"{case.__name__} {seed} {number}"))
        except Exception as error:
            raise AssertionError(
                f"case {number} (AW_FUZZ_SEED={seed} AW_FUZZ_CASE={number}): {error}"
            ) from error


def told(call: Callable[[], T]) -> T | None:
    """Return a call's result, or None if it raises our error; fail on any other exception."""
    try:
        return call()
    except (ValueError, TypeError, IndexError, FileNotFoundError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        ours = OURS in Path(last.filename).parents and (last.line or "").startswith("raise")
        if not (ours and str(error).strip()):
            raise AssertionError(
                f"raw {type(error).__name__} at {last.filename}:{last.lineno}: {error}"
            ) from error
        return None


def fingerprint(model: Any) -> str:
    """Return a hash of all state of a model that a call could leave changed: bits, flags, hooks, config."""
    digest = hashlib.sha256()
    for name, numbers in (*model.named_parameters(), *model.named_buffers()):
        state = (name, numbers.dtype, numbers.shape, numbers.requires_grad, numbers.grad is None)
        digest.update(repr(state).encode())
        digest.update(numbers.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    for name, module in model.named_modules():
        hooks = [[*getattr(module, table)] for table in vars(module) if table.endswith("_hooks")]
        config = getattr(module, "config", None)
        attention = getattr(config, "_attn_implementation", None)
        state = (name, module.training, sorted(vars(module)), hooks, attention, repr(config))
        digest.update(repr((*state, getattr(module.forward, "__qualname__", ""))).encode())
    options = getattr(model, "generation_config", None)
    digest.update(repr((options, torch.is_grad_enabled(), torch.get_rng_state().tolist()[:8])).encode())
    return digest.hexdigest()
