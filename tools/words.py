"""Count words that stand for something unnamed, folder by folder: `python tools/words.py`.

A name should say what a value is (`scores`, `layer_weights`, `cached`), not how it came (`found`, `kept`).
The last row is the highest rate among six comparable packages: captum, treescope, inseq, TransformerLens,
lonboard, nnsight. This reports and gates nothing.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "what": 0.7, "one": 5.7, "place": 1.3, "own": 1.3, "found": 2.1, "kept": 0.7, "held": 0.2, "known": 1.0,
}  # fmt: skip
_WORD = re.compile(rf"\b({'|'.join(ELSEWHERE)})s?\b", re.IGNORECASE)


def counted(path: Path) -> tuple[Counter[str], int]:
    """Return how often each word stands in a file, and its number of lines."""
    text = path.read_text(encoding="utf-8")
    return Counter(word.lower() for word in _WORD.findall(text)), text.count("\n")


def main() -> None:
    """Print the words per 1,000 lines of every folder, and the worst files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", default=["attnwidgets", "js/src", "tests"], type=Path)
    parser.add_argument("--files", type=int, default=15, help="how many of the worst files are listed")
    given = parser.parse_args()
    words: dict[str, Counter[str]] = {}
    lines: Counter[str] = Counter()
    worst = []
    for folder in given.folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in {".py", ".ts"} or "node_modules" in path.parts:
                continue
            here, length = counted(path)
            name = "/".join(path.relative_to(ROOT).parts[:-1][:2])
            words[name] = words.get(name, Counter()) + here
            lines[name] += length
            if length:
                worst.append((1000 * here.total() / length, here.total(), path.relative_to(ROOT)))
    print("per 1,000 lines".ljust(28), *(word.rjust(6) for word in ELSEWHERE), "lines".rjust(7))
    for name, here in sorted(words.items(), key=lambda item: -item[1].total() / max(1, lines[item[0]])):
        rates = (f"{1000 * here[word] / max(1, lines[name]):6.1f}" for word in ELSEWHERE)
        print(name.ljust(28), *rates, str(lines[name]).rjust(7))
    print("elsewhere, at most".ljust(28), *(f"{rate:6.1f}" for rate in ELSEWHERE.values()))
    for rate, count, path in sorted(worst, reverse=True, key=lambda item: item[1])[: given.files]:
        print(f"{count:5} {rate:6.0f} per 1,000  {path}")


if __name__ == "__main__":
    main()
