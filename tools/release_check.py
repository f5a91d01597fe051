"""Build what would be published and try it: `make release-check`.

Each check returns what is wrong, in words; the command prints all of it and fails if there is anything. With
`--publish` it also refuses what only a real release has: an address and a date in the changelog.
"""

from __future__ import annotations

import argparse
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import places
from matrix import interpreters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from email.message import Message

ROOT = Path(__file__).parents[1]
MAX_WHEEL_BYTES = 3_500_000
MAX_INSTALLED_BYTES = 600_000_000
"""The package and all that it requires but torch and what only torch requires, with compiled Python."""
SOURCE = {".js", ".py", ".pyi", ".typed"}
"""Suffixes of what this project wrote: every other file of the wheel is listed in THIRD_PARTY.md."""
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


# --- what is in the archives --------------------------------------------------------------------------------


def contents(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel or an sdist, by name; those of an sdist without its top folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as sdist:
        files = (
            (member.name.split("/", 1)[1], sdist.extractfile(member)) for member in sdist if member.isfile()
        )
        return {name: file.read() for name, file in files if file is not None}


def tracked(root: Path = ROOT) -> set[str]:
    """Return the files that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    return set(listed.stdout.split("\0")) - {""}


def differing(one: Path, other: Path) -> list[str]:
    """Say which files of two wheels differ."""
    first, second = contents(one), contents(other)
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return [f"{name}: not the same in the wheel of the sdist as in that of the folder" for name in names]


def strays(sdist: Path, wheel: Path, known: Iterable[str], root: Path = ROOT) -> list[str]:
    """Say which files are in an archive and should not be, or the other way round."""
    known, inside, shipped = set(known), contents(wheel), contents(sdist)
    package = {name for name in known if name.startswith("attnwidgets/")}
    own = {name for name in inside if re.match(r"attnwidgets-[^/]*\.dist-info/", name)}
    faults = [f"sdist: {name} is not under version control" for name in shipped.keys() - known - {"PKG-INFO"}]
    faults += [f"wheel: {name} does not belong there" for name in inside.keys() - package - own]
    faults += [f"wheel: {name} is missing" for name in package - inside.keys()]
    changed = [name for name in package & inside.keys() if (root / name).read_bytes() != inside[name]]
    return sorted(faults + [f"wheel: {name} is not the file of this folder" for name in changed])


def oversize(wheel: Path, limit: int = MAX_WHEEL_BYTES) -> list[str]:
    """Say whether a wheel is too large."""
    size = wheel.stat().st_size
    return [f"wheel: {size:,} bytes, more than {limit:,}"] if size > limit else []


# --- what they say of themselves ----------------------------------------------------------------------------


def metadata(archive: Path) -> Message:
    """Return the metadata of a wheel or an sdist."""
    files = contents(archive)
    name = next(
        name for name in files if re.fullmatch(r"attnwidgets-[^/]*\.dist-info/METADATA|PKG-INFO", name)
    )
    return email.message_from_bytes(files[name])


def versions(
    sdist: Path, wheel: Path, changelog: str, *, publishes: bool = False, tag: str | None = None
) -> list[str]:
    """Say where versions disagree: of archives, changelog and tag ("v0.1.0")."""
    newest = re.search(r"^## (\S+) \((.*)\)", changelog, re.MULTILINE)
    said, dated = newest.groups() if newest else ("nothing", "")
    found = {archive.name: metadata(archive)["Version"] for archive in (sdist, wheel)}
    faults = [
        f"{name}: version {of}, but the changelog has {said}" for name, of in found.items() if of != said
    ]
    if tag is not None and tag != f"v{said}":
        faults.append(f"tag: {tag}, but the changelog has {said}")
    if publishes and not re.fullmatch(r"\d{4}-\d\d-\d\d", dated):
        faults.append(f"CHANGELOG.md: {said} is {dated or 'without a date'}")
    return faults


def licences(wheel: Path, root: Path = ROOT) -> list[str]:
    """Say whose licence is missing: of npm packages in the bundle, and of files that are not source."""
    files = contents(wheel)
    kept = {Path(name).name: text for name, text in files.items() if ".dist-info/licenses/" in name}
    faults = [f"wheel: {name} is missing" for name in ("LICENSE", "THIRD_PARTY.md") if name not in kept]
    listed = kept.get("THIRD_PARTY.md", b"").decode()
    others = [name for name in files if ".dist-info/" not in name and Path(name).suffix not in SOURCE]
    # A folder stands for its files.
    faults += [
        f"THIRD_PARTY.md does not list {name}"
        for name in others
        if name not in listed and f"`{Path(name).parent.as_posix()}`" not in listed
    ]
    # "assembly:" is our own code, which the build compiles.
    compiled = set(json.loads((root / "js" / "package.json").read_text()).get("dependencies", {}))
    for script in (root / "js" / "src").rglob("*.ts"):
        text = script.read_text(encoding="utf-8")
        named = r'^(?:import|export)\b(?! type)[^;"]*?\bfrom "(?!assembly:)([^.][^"]*)"'
        found = re.findall(named, text, re.MULTILINE)
        found += re.findall(r'^import "([^.][^"]*)"', text, re.MULTILINE)
        compiled |= {"/".join(name.split("/")[: 2 if name.startswith("@") else 1]) for name in found}
    return faults + [f"THIRD_PARTY.md does not list npm's {name}" for name in compiled if name not in listed]


def description(wheel: Path, root: Path = ROOT) -> list[str]:
    """Say what a package index would not show of the README."""
    from readme_renderer import markdown

    text = metadata(wheel).get_payload()
    page = markdown.render(text) if isinstance(text, str) else None
    if page is None:
        return ["README: it cannot be rendered"]
    faults = (
        []
        if len(re.findall("<img ", page)) >= len(re.findall("<img ", text))
        else ["README: a picture is lost"]
    )
    here = places.place(root)
    folders = [
        f"https://github.com/{here.slug}/blob/main/",
        f"https://raw.githubusercontent.com/{here.slug}/main/",
    ]
    for address in re.findall(r'(?:src|srcset|href)="([^"]*)"', page):
        path = next((address.removeprefix(at) for at in folders if address.startswith(at)), None)
        if path is None:
            if not address.startswith(("https://", "#")):
                faults.append(f"README: {address} leads nowhere from a package index")
        elif not (root / path.split("#")[0]).exists():
            faults.append(f"README: there is no {path}")
    return faults


def addresses(root: Path = ROOT, *, publishes: bool = False) -> list[str]:
    """Say which addresses are not those of pyproject.toml."""
    stale = [
        f"{path.relative_to(root)}: names another place, run make places" for path in places.outdated(root)
    ]
    unset = publishes and places.place(root).is_placeholder
    return stale + places.strangers(root) + (["pyproject.toml: Repository is a placeholder"] if unset else [])


# --- an installation ----------------------------------------------------------------------------------------

_PROBE = """
import sys
from pathlib import Path
import attnwidgets as aw
assert "site-packages" in aw.__file__, aw.__file__
assert aw.__version__ == sys.argv[1], aw.__version__
assert not {"torch", "transformers", "matplotlib"} & set(sys.modules), "an import loads what is heavy"
assert "Explorer" in dir(aw)
try:
    import torch
except ImportError:
    print("no torch: imported only")
    sys.exit()
numbers = [[[[1.0, 0.0], [0.25, 0.75]]]]
trace = aw.from_attentions(numbers, tokens=["a", "b"])
page = aw.Heatmap(trace).to_html("page.html").read_text(encoding="utf-8")
assert "attnwidgets" in page and not {"http://", "https://"} & set(page.split('"')), "the page asks for more"
aw.Heatmap(trace).save("figure.png")
print(f"torch {torch.__version__}: a page and a figure")
"""
_TORCH = """from importlib.util import find_spec
from pathlib import Path
print(Path(find_spec("torch").origin).parents[1])"""


def installed(wheel: Path, python: str) -> list[str]:
    """Install a wheel and what it requires but torch into an empty environment; say what fails there.

    A torch that `python` itself can import is used, since torch is gigabytes; without one the package is only
    imported.
    """
    clean = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    with tempfile.TemporaryDirectory() as scratch:

        def call(*command: str | Path) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, cwd=scratch, env=clean, capture_output=True, text=True, check=False
            )

        call(python, "-m", "venv", "--without-pip", "empty")
        inside = Path(scratch, "empty", "Scripts" if os.name == "nt" else "bin", "python")
        pip = [sys.executable, "-m", "pip", "--python", inside, "--quiet", "--disable-pip-version-check"]
        site = Path(
            call(inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        )
        requires = [name for name in metadata(wheel).get_all("Requires-Dist", []) if "extra ==" not in name]
        light = [name for name in requires if not re.match(r"torch\b", name)]
        for wanted in filter(None, (light, ["--no-deps", wheel.resolve()])):
            done = call(*pip, "install", *wanted)
            if done.returncode:
                return [f"{python}: pip install fails: {done.stderr.strip()[-600:]}"]
        size = _bytes(site)
        torch = call(python, "-c", _TORCH)
        if not torch.returncode:
            (site / "torch-of-python.pth").write_text(torch.stdout)
        done = call(inside, "-c", _PROBE, metadata(wheel)["Version"])
        print(f"  {python}: {size / 1e6:.0f} MB beside torch; {done.stdout.strip()}", flush=True)
    faults = [f"{python}: {done.stderr.strip()[-600:]}"] if done.returncode else []
    if size > MAX_INSTALLED_BYTES:
        faults.append(f"{python}: {size:,} bytes installed beside torch, more than {MAX_INSTALLED_BYTES:,}")
    return faults


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- all of it ----------------------------------------------------------------------------------------------


def built(folder: Path) -> tuple[Path, Path, Path]:
    """Return the sdist, the wheel made from it and the wheel made from the folder."""
    for kinds, out in (((), folder), (("--wheel",), folder / "direct")):
        command = [sys.executable, "-m", "build", *kinds, "--outdir", str(out), str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} fails:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = [next(folder.glob(pattern)) for pattern in ("*.tar.gz", "*.whl", "direct/*.whl")]
    return found[0], found[1], found[2]


def twine(*archives: Path) -> list[str]:
    """Say what the index would refuse."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [done.stdout.strip()[-1000:] + done.stderr.strip()[-1000:]] if done.returncode else []


def main() -> int:
    """Run every check; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", action="store_true", help="refuse a placeholder and a missing date, too")
    parser.add_argument("--tag", help="what the release is tagged with")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the archives are written")
    parser.add_argument("--python", action="append", help="a Python to install on; not given: all at hand")
    asked = parser.parse_args()
    shutil.rmtree(asked.out, ignore_errors=True)
    sdist, wheel, direct = built(asked.out)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    checks: dict[str, Callable[[], list[str]]] = {
        "the sdist builds the same wheel": lambda: differing(wheel, direct),
        "no file too many, none missing": lambda: strays(sdist, wheel, tracked()),
        "size of the wheel": lambda: oversize(wheel),
        "version and changelog": lambda: versions(
            sdist, wheel, changelog, publishes=asked.publish, tag=asked.tag
        ),
        "licences": lambda: licences(wheel),
        "README on a package index": lambda: description(wheel),
        "addresses": lambda: addresses(publishes=asked.publish),
        "twine check": lambda: twine(sdist, wheel),
    }
    found = interpreters(list(PYTHONS))
    there = asked.python or [str(path) for path in found.values()]
    checks |= {f"an installation, {python}": lambda at=python: installed(wheel, at) for python in there}
    total = 0
    for name, check in checks.items():
        faults = check()
        total += len(faults)
        print(f"{'FAILS' if faults else 'ok'}: {name}", *faults, sep="\n  ", flush=True)
    shutil.rmtree(direct.parent)
    print(
        f"{sdist.name} {sdist.stat().st_size / 1e6:.2f} MB, {wheel.name} {wheel.stat().st_size / 1e6:.2f} MB"
    )
    missing = [version for version in PYTHONS if version not in found]
    if missing and not asked.python:
        print(f"not tried, for lack of an interpreter: Python {', '.join(missing)}")
    if places.place().is_placeholder and not asked.publish:
        print("to be set before a release: Repository in pyproject.toml")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
