"""Writing files for a reader: all or nothing."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from pathlib import Path


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole: a full disk or an interrupt leaves what was there before, and nothing beside it.

    A file that is replaced keeps its permissions; a link still points where it pointed.

    Raises:
        OSError: The file cannot be written; it is named.
    """
    given = Path(path)
    target = given.resolve()
    beside = target.with_name(f".attnwidgets-{uuid.uuid4().hex}")
    mode = given.stat().st_mode if given.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        given.write_bytes(data)  # a pipe or a device; a folder refuses
        return
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file that is there may not be written to", str(path))
    try:
        with beside.open("xb") as file:
            file.write(data)
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(target)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise
