"""Parcels: data too large to send are refused, and so are swapped parcels."""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from attnwidgets import _parcels
from attnwidgets._parcels import parcel
from attnwidgets.tracing.content import key_of

VALUE = {"weights": list(range(1000))}


class Elsewhere(Executor):
    """An executor on other machines."""


def lent(value: Any, jobs: Any, **more: Any) -> Any:
    return parcel(value, jobs, kind="thing", description="thing 'x'", check=key_of, **more)


@pytest.mark.parametrize("jobs", [2, Elsewhere()])
def test_an_object_arrives_once(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with lent(VALUE, jobs) as sent:
        arrived = pickle.loads(pickle.dumps(sent))
        assert arrived.open() == VALUE
        assert arrived.open() is not VALUE
        monkeypatch.setattr(type(arrived.make), "__call__", lambda _: pytest.fail("opened twice"))
        assert arrived.open() is sent.open()


def test_what_stays_here_is_itself() -> None:
    with ThreadPoolExecutor(1) as threads:
        for jobs in (1, threads):
            with lent(VALUE, jobs) as sent:
                assert sent.open() is VALUE


def test_an_object_too_large_to_send_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parcels, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match=r"thing 'x' is an object of .*Elsewhere would send.*folder"):  # noqa: SIM117
        with lent(VALUE, Elsewhere()):
            pass


def test_another_thing_under_the_name_is_refused() -> None:
    with (
        lent({"weights": [0]}, 2, make=partial(dict, weights=[1])) as sent,
        pytest.raises(ValueError, match="thing 'x' is not the same in a worker"),
    ):
        sent.open()
