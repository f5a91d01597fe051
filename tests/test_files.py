"""Files are written whole or not at all."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets._files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOM = 1000  # bytes: less than any of these files


@pytest.fixture(scope="module")
def trace() -> Any:
    return aw.from_attentions(np.full((2, 2, 6, 6), 1 / 6), list("abcdef"))


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond `ROOM`, as a disk does that has no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


WRITERS = {
    "page.html": lambda trace, path: aw.Heatmap(trace).to_html(path),
    "picture.svg": lambda trace, path: aw.Heatmap(trace).save(path),
    "picture.png": lambda trace, path: aw.Heatmap(trace).save(path),
    "picture.pdf": lambda trace, path: aw.Heatmap(trace).save(path),
    "figure.png": lambda trace, path: aw.attention(trace).figure().savefig(path),
    "figure": lambda trace, path: aw.attention(trace).figure().savefig(path, format="svg"),
    "map.safetensors": lambda trace, path: aw.attention(trace).save(path),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_no_other(trace: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for old in (None, b"the earlier bytes"):
        if old is not None:
            path.write_bytes(old)
        with full_disk(), pytest.raises(OSError, match=name):
            WRITERS[name](trace, path)
        assert [*tmp_path.iterdir()] == ([] if old is None else [path])
        assert old is None or path.read_bytes() == old
    WRITERS[name](trace, path)
    assert len(path.read_bytes()) > ROOM


def test_a_file_that_is_replaced_keeps_its_permissions_and_its_links(tmp_path: Path) -> None:
    path, link = tmp_path / "real", tmp_path / "link"
    write_bytes(path, b"1")
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    path.chmod(0o640)
    link.symlink_to(path)
    write_bytes(link, b"2")
    assert link.is_symlink()
    assert path.read_bytes() == b"2"
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        write_bytes(tmp_path, b"1")
    with pytest.raises(FileNotFoundError, match="nowhere/file"):
        write_bytes(tmp_path / "nowhere" / "file", b"1")
    path = tmp_path / "file"
    path.write_bytes(b"1")
    monkeypatch.setattr("os.access", lambda *_: False)  # tests may run as root, who may do everything
    with pytest.raises(PermissionError, match=r"not writable.*file"):
        write_bytes(path, b"2")
    assert path.read_bytes() == b"1"


def test_a_figure_without_an_ending_becomes_a_png(trace: Any, tmp_path: Path) -> None:
    aw.attention(trace).figure().savefig(tmp_path / "figure")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
