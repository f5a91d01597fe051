"""Saved explanations with bytes cut or flipped, and with edited descriptions."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.results.archive import ArchiveError
from tests.circuits import made as circuits
from tests.sae import made
from tests.tracing import tiny

from .fuzzing import fuzz, told

VALUES = [
    *(None, -1, 0, 1, 2**31, 2**63, 1e400, float("nan"), True, [], {}, [[]], [None], [1, 2, 3], {"a": 1}),
    *("", "x", "../../etc/passwd", "\ud800", "<script>", "A" * 5000),
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> list[bytes]:
    """Intact archives of maps, attributions, statistics and results of circuits."""
    folder = tmp_path_factory.mktemp("whole")
    model = tiny.build(tiny.TEXT["Llama"])
    trace = aw.trace(model, None, [5, 6, 7, 8, 9])
    texts = [[1, 2, 3, 4, 5], [7, 8, 9, 4, 3]] * 3
    stats = aw.feature_stats(
        model,
        None,
        made.sae(d_in=32, site=made.SITE),
        texts,
        context=8,
        dashboard=aw.FeatureDashboard(examples=3, logits=3),
    )
    results = [
        aw.attention(trace),
        aw.rollout(trace),
        aw.lrp(trace),
        aw.saliency(trace),
        aw.statistics.head_statistics(trace),
        stats,
    ]
    pair = circuits.induction()
    results += [
        aw.circuits.patch(*pair, "c", foil="a", estimate=True),
        aw.circuits.lens(pair[0]),
        aw.circuits.check_claims(
            pair[0].model,
            pair[0].tokenizer,
            ["head 1.1 attends from late to early", "head 1.0 is induction"],
            ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa"],
            roles={"late": r"(..)$", "early": "^."},
        ),
    ]
    return [result.save(folder / f"{at}.safetensors").read_bytes() for at, result in enumerate(results)]


def changed(r: Any, value: Any, depth: int = 0) -> Any:
    """Return JSON with an item lost, doubled, renamed or replaced."""
    if isinstance(value, dict) and value and (depth == 0 or r.random() < 0.8):
        name, made = r.choice([*value]), dict(value)
        kind = r.random()
        if kind < 0.15:
            del made[name]
        elif kind < 0.25:
            made[f"{name}x"] = made.pop(name)
        else:
            made[name] = changed(r, made[name], depth + 1) if r.random() < 0.75 else r.choice(VALUES)
        return made
    if isinstance(value, list) and value and r.random() < 0.8:
        made, at, kind = [*value], r.randrange(len(value)), r.random()
        if kind < 0.15:
            made.pop(at)
        elif kind < 0.3:
            made.append(made[at])
        else:
            made[at] = changed(r, made[at], depth + 1)
        return made
    return r.choice(VALUES)


def damaged(r: Any, data: bytes) -> bytes:
    size = struct.unpack("<Q", data[:8])[0]
    header, rest = json.loads(data[8 : 8 + size]), data[8 + size :]
    kind = r.random()
    if kind < 0.1:
        return data[: r.randrange(len(data))]
    if kind < 0.25:
        flipped = bytearray(data)
        for _ in range(r.randint(1, 20)):
            flipped[r.randrange(len(flipped))] = r.randrange(256)
        return bytes(flipped)
    if kind < 0.4:
        header = changed(r, header)
    else:
        header["__metadata__"]["attnwidgets"] = json.dumps(
            changed(r, json.loads(header["__metadata__"]["attnwidgets"]))
        )
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def test_archives(files: list[bytes], tmp_path: Any) -> None:
    path = tmp_path / "file.safetensors"

    def an_archive(r: Any) -> None:
        path.write_bytes(damaged(r, r.choice(files)))
        try:
            loaded = aw.load(path)
        except ArchiveError as error:
            if path.name not in str(error):
                raise AssertionError("the error does not name the file") from error
            return
        assert repr(loaded)
        values = loaded.values
        for array in values.values() if isinstance(values, Mapping) else [values]:
            assert np.asarray(array).dtype.kind == "f"
        told(loaded.describe)
        if r.random() < 0.3:
            view = told(loaded.view)
            if hasattr(view, "close"):
                view.close()

    fuzz(an_archive, 900)
