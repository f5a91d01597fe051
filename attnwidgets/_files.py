"""Writing files atomically."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from pathlib import Path


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file atomically: a full disk or an interrupt leaves the old file, and no temporary file.

    A replaced file keeps its permissions; a link still points to the same file.

    Raises:
        OSError: The file cannot be written; the error names it.
    """
    given = Path(path)
    target = given.resolve()
    temporary = target.with_name(f".attnwidgets-{uuid.uuid4().hex}")
    mode = given.stat().st_mode if given.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        given.write_bytes(data)  # a pipe or a device; a folder raises
        return
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the existing file is not writable", str(path))
    try:
        with temporary.open("xb") as file:
            file.write(data)
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise
