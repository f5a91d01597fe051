"""Progress of long work: told to whoever watches, who may stop it."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from attnwidgets._progress import Cancelled, observing, progress


def test_an_observer_hears_every_step_and_no_bar_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[int, int | None, str]] = []
    with observing(lambda *step: heard.append(step)):
        assert list(progress("ab", desc="letters")) == ["a", "b"]
    assert heard == [(0, 2, "letters"), (1, 2, "letters"), (2, 2, "letters")]
    assert capsys.readouterr().err == ""


def test_work_stops_where_the_observer_cancels_it() -> None:
    done: list[int] = []

    def stop_after_two(steps: int, *_: object) -> None:
        if steps == len(done) == 2:
            raise Cancelled

    def work() -> None:
        for number in progress(range(10), desc="numbers"):
            done.append(number)  # noqa: PERF402 - steps that were finished stay done

    with pytest.raises(Cancelled), observing(stop_after_two):
        work()
    assert done == [0, 1]


def test_outside_of_an_observer_items_pass_unchanged() -> None:
    with observing(lambda *_: None):
        pass
    assert list(islice(progress(iter(range(3)), desc="numbers", total=3), 3)) == [0, 1, 2]


_KERNEL = """
import sys
sys.path.insert(0, {root!r})
import ipywidgets
from attnwidgets import _progress
from attnwidgets.sphinx.cell import open_widgets

def work(steps, delay, stop=None):
    _progress._DELAY_SECONDS = delay
    for number in _progress.progress(range(steps), desc="working"):
        if number == stop:
            break

def failing():
    for _ in _progress.progress(range(9), desc="failing"):
        if _ == 4:
            raise ValueError

def counted():
    return len(open_widgets()), len(get_ipython().kernel.comm_manager.comms)
"""


def _outputs(cells: list[str]) -> list[list[Any]]:
    """Return the output of each cell in a real kernel, the first of which knows `work` and `counted`."""
    nbformat = pytest.importorskip("nbformat", reason="pip install nbclient (make test does it)")
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient (make test does it)")
    setup = _KERNEL.format(root=str(Path(__file__).parents[1]))
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in [setup, *cells]],
        metadata={"kernelspec": {"name": "python3", "display_name": "", "language": "python"}},
    )
    nbclient.NotebookClient(notebook, timeout=240).execute()
    return [cell.outputs for cell in notebook.cells[1:]]


@pytest.mark.slow
def test_200_runs_leave_no_widget_in_a_kernel() -> None:
    runs = """
from contextlib import suppress
before = counted()
for _ in range(190):
    work(5, 1)
for _ in range(5):
    work(5, 0)
    work(5, 0, stop=2)
_progress._DELAY_SECONDS = 0
with suppress(ValueError):
    failing()
assert before == counted(), (before, counted())
"""
    short, every = _outputs(["work(5, 1)\nassert counted() == (0, 0)", runs])
    assert short == [], "no bar before a second has passed"
    assert len(every) == 11, "a line for each of the bars"
    assert [output.data for output in every] == [{"text/plain": ""}] * 11, "and nothing left in it"


def test_a_bar_shows_how_far_long_work_is(capsys: pytest.CaptureFixture[str]) -> None:
    for number in progress(range(4), desc="numbers"):
        time.sleep(0.6)
        drawn = capsys.readouterr().err
        assert ("2/4" in drawn) == (number == 2), "nothing before the first step after a second"
    assert capsys.readouterr().err.split("\r")[-2].isspace(), "the line is blank again"
