"""Where Chromium is: for the tests, the benchmarks and the pictures of the documentation."""

from __future__ import annotations

import os
import shutil

# The shell is the same engine without toolbar and tabs, and a new page costs a quarter of the processor time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


def executable() -> str:
    """Return the path of Chromium: $CHROMIUM, else the first name that the system finds.

    Raises:
        FileNotFoundError: If there is none.
    """
    for name in (os.environ.get("CHROMIUM", ""), *NAMES):
        if path := shutil.which(name):
            return path
    raise FileNotFoundError("no Chromium: install the system's package, or set CHROMIUM to its path")
