"""Progress of long work: told to whoever watches, who may stop it."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import tqdm.auto
import tqdm.notebook

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


def test_the_bar_of_work_that_ends_early_is_not_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(tqdm.auto, "tqdm", tqdm.notebook.tqdm)
    monkeypatch.setattr(tqdm.notebook, "display", shown.append)
    monkeypatch.setattr("attnwidgets._progress._DELAY_SECONDS", 0)
    steps = progress(range(10), desc="writing")
    assert list(islice(steps, 3)) == [0, 1, 2]
    (bar,) = shown
    assert bar.comm is not None
    del steps
    assert bar.comm is None
    assert bar.children[1].bar_style != "danger"
