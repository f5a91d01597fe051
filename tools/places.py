"""Point every address of the project to where it is published: `make places`.

The one line to change is `Repository` under [project.urls] in pyproject.toml. The lines below it, the
Colab badges and links of the notebooks and whatever else names the repository are written anew from it.
`Issues` remembers what the repository was called before. `--check` changes nothing and lists what differs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PROJECT = "attnwidgets"
PLACEHOLDER = "YOUR_ACCOUNT"
"""The account in `Repository` until there is one: no account can have an underscore in its name."""

_SUFFIXES = {".cff", ".css", ".ipynb", ".json", ".md", ".mjs", ".py", ".toml", ".ts", ".yaml", ".yml"}
_SKIPPED = {".git", ".venv", "build", "dist", "node_modules", "out", "static", "__pycache__"}
_HOSTS = r"github\.com|raw\.githubusercontent\.com|colab\.research\.google\.com/github|nbviewer\.org/github"


class Place(NamedTuple):
    """A repository on GitHub: the account that it belongs to, and its name."""

    owner: str
    name: str

    @classmethod
    def of(cls, address: str) -> Place:
        """Return the place that an address names.

        Raises:
            ValueError: It is not that of a repository on GitHub, which Colab needs.
        """
        found = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+?)/?", address)
        if not found:
            wanted = "https://github.com/<account>/<name>"
            raise ValueError(f"Repository = {address!r} in pyproject.toml is not of the form {wanted}.")
        return cls(*found.groups())

    @property
    def slug(self) -> str:
        """Account and name, as GitHub writes them."""
        return f"{self.owner}/{self.name}"

    @property
    def is_placeholder(self) -> bool:
        """Whether this is no address yet."""
        return self.owner == PLACEHOLDER

    def moved(self, text: str, new: Place) -> str:
        """Return a text with every address in this place replaced by the same in another."""
        text = re.sub(rf"({_HOSTS})/{re.escape(self.slug)}\b", rf"\1/{new.slug}", text)
        pages = f"{self.owner}.github.io/{self.name}".lower()
        return re.sub(
            re.escape(pages), f"{new.owner}.github.io/{new.name}".lower(), text, flags=re.IGNORECASE
        )

    def strangers(self, text: str) -> list[str]:
        """Return the addresses in a text that name this project elsewhere."""
        name = rf"({self.name}|{PROJECT})\b"
        anywhere = rf"(?:{_HOSTS})/([\w.-]+)/{name}|([\w-]+)\.(?:github|readthedocs)\.io/{name}"
        strange = []
        for found in re.finditer(anywhere, text, flags=re.IGNORECASE):
            named = found.group(1) or found.group(3), found.group(2) or found.group(4)
            if Place(*named).slug.lower() != self.slug.lower():
                strange.append(found.group(0))
        return strange


def urls(root: Path = ROOT) -> dict[str, str]:
    """Return the addresses of pyproject.toml, by name."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    section = re.search(r"^\[project\.urls\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r'^(\w+) = "(.*)"$', section.group(1), re.MULTILINE)) if section else {}


def place(root: Path = ROOT) -> Place:
    """Return where the project is published."""
    return Place.of(urls(root)["Repository"])


def outdated(root: Path = ROOT) -> dict[Path, str]:
    """Return the files that name another place than pyproject.toml, and what they should contain."""
    before = Place.of(urls(root)["Issues"].removesuffix("/issues"))
    texts = {path: path.read_text(encoding="utf-8") for path in _files(root)}
    moved = {path: before.moved(text, place(root)) for path, text in texts.items()}
    return {path: text for path, text in moved.items() if text != texts[path]}


def strangers(root: Path = ROOT) -> list[str]:
    """Return what names a repository of the project's name elsewhere, as "file: address"."""
    here = place(root)
    return [
        f"{path.relative_to(root).as_posix()}: {address}"
        for path in _files(root)
        for address in here.strangers(path.read_text(encoding="utf-8"))
    ]


def _files(root: Path) -> list[Path]:
    """Return the text files of the project, without what is built and installed."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith(".venv")]
        found += [Path(folder, name) for name in names if Path(name).suffix in _SUFFIXES]
    return sorted(found)


def main() -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="list what is not as it should be")
    checks = parser.parse_args().check
    changes = outdated()
    for path, text in changes.items():
        print(f"{path.relative_to(ROOT)}: {'names another place' if checks else 'written'}")
        if not checks:
            path.write_text(text, encoding="utf-8")
    others = strangers() if not changes or not checks else []
    for line in others:
        print(f"{line} (name the place of pyproject.toml, or no place)")
    here = place()
    print(f"The project is at https://github.com/{here.slug}", end="")
    print(": a placeholder, change the line in pyproject.toml" if here.is_placeholder else "")
    return 1 if others or (checks and changes) else 0


if __name__ == "__main__":
    sys.exit(main())
