"""What a type checker knows of the public functions."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
from typing import Any

import attnwidgets as aw
from attnwidgets.statistics.table import HeadStatistics
from attnwidgets.tracing.from_attentions import GivenTrace
from typing_extensions import assert_type

model: Any
tokenizer: Any
tensor: Any
words: list[str]

assert_type(aw.trace(model, tokenizer, "a text"), aw.Trace)
assert_type(aw.trace("folder", text="a text", truncation=True), aw.Trace)
assert_type(aw.trace(model, tokenizer, ["one", "two"]), list[aw.Trace])
assert_type(aw.trace(model, tokenizer, text=("one", "two"), words="whitespace"), list[aw.Trace])
assert_type(aw.trace(model, tokenizer, words=words), aw.Trace)
assert_type(aw.trace(model, tokenizer, messages=[{"role": "user", "content": "Hi"}]), aw.Trace)
assert_type(aw.trace(model, tokenizer, "a text", image=tensor), aw.Trace)
assert_type(aw.trace(model, input_ids=[1, 2]), aw.Trace)
assert_type(aw.trace(model, input_ids=[[1, 2], [3, 4]]), aw.Trace | list[aw.Trace])
assert_type(aw.trace("folder", "a text"), aw.Trace)
assert_type(aw.trace("folder", ["one", "two"]), list[aw.Trace])
assert_type(aw.trace("folder", text=["one", "two"]), list[aw.Trace])
assert_type(aw.from_attentions(tensor, ["a", "b"]), GivenTrace)
assert_type(aw.from_attentions("folder"), GivenTrace)
trace: aw.Trace
assert_type(aw.rollout(trace, residual_weight=0.8), aw.MixingMap)
assert_type(aw.rollout([trace, trace]), list[aw.MixingMap])
assert_type(aw.saliency((trace,)), list[aw.Attributions])
assert_type(aw.head_statistics([trace], "entropy"), list[HeadStatistics])
aw.rollout(trace, residual_wieght=0.8)  # type: ignore[call-overload]
aw.trace(model, tokenizer, "a text", truncate=True)  # type: ignore[call-overload]
aw.from_attentions(tensor, token=["a", "b"])  # type: ignore[call-arg]
"""


@pytest.mark.slow
def test_a_text_gives_a_trace_and_texts_give_a_list(tmp_path: Path, root: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = ["--strict", f"--config-file={root / 'pyproject.toml'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(program)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
