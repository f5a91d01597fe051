"""Modes of autograd are restored, whatever line of theirs an interrupt stops."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from attnwidgets import _gradients
from attnwidgets._gradients import enable_grad, no_grad

if TYPE_CHECKING:
    from types import FrameType

FILES = {Path(_gradients.__file__).name, Path(torch.autograd.grad_mode.__file__).name}


def stopped_at(mode: Any, line: int) -> bool:
    """Use a mode, interrupted at a line of the code that sets and restores it; return whether it was."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if event == "line" and Path(frame.f_code.co_filename).name in FILES:
            seen += 1
            if seen == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with mode():
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("mode", [no_grad, enable_grad])
@pytest.mark.parametrize("outside", [True, False])
def test_an_interrupt_at_any_line_leaves_the_mode_as_it_was(mode: Any, outside: bool) -> None:
    with torch.set_grad_enabled(outside):
        for line in count(1):
            if not stopped_at(mode, line):
                break
            assert torch.is_grad_enabled() is outside, line
    assert line > 10


def test_gradients_are_off_and_on_inside() -> None:
    with no_grad():
        assert not torch.is_grad_enabled()
        with enable_grad():
            assert torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
