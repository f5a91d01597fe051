"""Install a wheel into an empty environment and import it from elsewhere: `check_wheel.py WHEEL`.

Exits with 1 on failure. torch and transformers are not installed: importing the package must not need them,
and the check stays quick.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIGHT = ("anywidget>=0.11", "ipywidgets", "lazy-loader>=0.4", "numpy")

PROBE = """
import sys
from importlib.metadata import version
from importlib.resources import files

import attnwidgets as aw

assert "site-packages" in aw.__file__, f"imported from {aw.__file__}, not from the wheel"
assert aw.__version__ == version("attnwidgets"), (aw.__version__, version("attnwidgets"))
heavy = {"torch", "transformers", "matplotlib"} & set(sys.modules)
assert not heavy, f"import attnwidgets loaded {heavy}"
assert "Explorer" in dir(aw), "the stub of the public names is not in the wheel"
print(f"wheel of attnwidgets {aw.__version__}: imported")
"""


def main(wheel: Path) -> int:
    names = zipfile.ZipFile(wheel).namelist()
    strays = [name for name in names if not name.startswith(("attnwidgets/", "attnwidgets-"))]
    if strays or "attnwidgets/py.typed" not in names:
        print(f"{wheel.name}: unexpected files {strays}; py.typed {'attnwidgets/py.typed' in names}")
        return 1
    parts = (path.stem for path in (ROOT / "js" / "src" / "parts").glob("*.ts"))
    missing = {f"attnwidgets/static/{name}.js" for name in ("attnwidgets", "standalone", *parts)} - set(names)
    if missing:
        print(f"{wheel.name}: {', '.join(sorted(missing))} missing")
        return 1
    environment = {
        key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}
    }
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = Path(scratch, "Scripts" if os.name == "nt" else "bin", "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *LIGHT], check=True, cwd=scratch, env=environment)
        subprocess.run([*pip, "--no-deps", wheel.resolve()], check=True, cwd=scratch, env=environment)
        return subprocess.run([python, "-c", PROBE], check=False, cwd=scratch, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
