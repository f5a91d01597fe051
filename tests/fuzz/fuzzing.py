"""How the fuzzers run: seeded cases, what an answer may be, and what a model must look like afterwards.

AW_FUZZ_SECONDS=60 gives each fuzzer a minute instead of a fixed number of cases, AW_FUZZ_SEED=7 other cases,
and AW_FUZZ_CASE=123 one case alone, as the message of a failure says.
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

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
OURS = Path(aw.__file__).parent
SECONDS = 15
"""A fuzzer that has not done its cases by then stops: a slow core must not make the tests slow."""


def fuzz(case: Callable[[random.Random], None], cases: int) -> None:
    """Run a case again and again, each time with random numbers of its own.

    Args:
        case: Makes something strange of the random numbers, and asserts what must be so whatever it is.
        cases: How many, where no time is given.
    """
    seed = os.environ.get("AW_FUZZ_SEED", "0")
    alone = os.environ.get("AW_FUZZ_CASE")
    seconds = float(os.environ.get("AW_FUZZ_SECONDS", "0"))
    ends = time.monotonic() + (seconds or SECONDS)
    done = 0
    for number in (int(alone),) if alone else count() if seconds else range(cases):
        if time.monotonic() > ends:
            break
        try:
            case(random.Random(f"{case.__name__} {seed} {number}"))
        except Exception as error:
            raise AssertionError(
                f"case {number} (AW_FUZZ_SEED={seed} AW_FUZZ_CASE={number}): {error}"
            ) from error
        done += 1
    assert alone or done >= min(cases, 10), "too slow to find anything"


def told(call: Callable[[], T]) -> T | None:
    """Return what a call returns, or None where it refuses in our own words; fail where it breaks."""
    try:
        return call()
    except (ValueError, TypeError, IndexError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        spoken = OURS in Path(last.filename).parents and (last.line or "").startswith("raise")
        if not (spoken and str(error).strip()):
            message = f"raw {type(error).__name__} at {last.filename}:{last.lineno}: {error}"
            raise AssertionError(message) from error
        return None


def fingerprint(model: Any) -> str:
    """Return a hash of all of a model that something could have left changed: bits, flags, hooks, config."""
    found = hashlib.sha256()
    for name, numbers in (*model.named_parameters(), *model.named_buffers()):
        about = (name, numbers.dtype, numbers.shape, numbers.requires_grad, numbers.grad is None)
        found.update(repr(about).encode())
        found.update(numbers.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    for name, module in model.named_modules():
        hooks = [[*getattr(module, table)] for table in vars(module) if table.endswith("_hooks")]
        config = getattr(module, "config", None)
        attention = getattr(config, "_attn_implementation", None)
        own = (name, module.training, sorted(vars(module)), hooks, attention, repr(config))
        found.update(repr((*own, getattr(module.forward, "__qualname__", ""))).encode())
    options = getattr(model, "generation_config", None)
    found.update(repr((options, torch.is_grad_enabled(), torch.get_rng_state().tolist()[:8])).encode())
    return found.hexdigest()
