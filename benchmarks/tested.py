"""Let scripts in this folder import from the tests: `import tested` before `from tests... import`.

The folder is given by its path, since an installed package may be called `tests` too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

os.environ["HF_HUB_OFFLINE"] = "1"

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

if str(ROOT / "tests") not in getattr(sys.modules.get("tests"), "__path__", ()):
    package = ModuleType("tests")
    package.__path__ = [str(ROOT / "tests")]
    sys.modules["tests"] = package
