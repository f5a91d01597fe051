"""Run every method on a tiny random model of every model type of transformers: docs/architectures.md.

python benchmarks/architectures.py                              # all, and writes the page: `make models`
python benchmarks/architectures.py llama "gemma3, picture"      # prints the verdicts on these
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import signal
import string
import sys
import time
import warnings
from collections import Counter
from itertools import product
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

import torch
import transformers
from pages import write_between
from tested import ROOT
from tqdm import tqdm

from tests.models.build import Kind, kinds
from tests.models.judge import CHECKED, COLUMNS, FAULT, METHODS, RAN, REFUSED, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from multiprocessing.connection import Connection

PAGE = ROOT / "docs" / "architectures.md"
BEGIN, END = "<!-- made by benchmarks/architectures.py -->\n", "<!-- end -->\n"
LIMIT = 90
"""Seconds of processor time that a type may take."""

Verdicts = dict[str, str]


def judged(types: list[Kind]) -> Iterator[tuple[Kind, Verdicts]]:
    """Yield the verdicts on every type, each from a process of its own, one a core at a time."""
    judge(Kind("bert", "masked"))  # imports once what every process needs
    processes = os.cpu_count() or 1
    fork = multiprocessing.get_context("fork")
    waiting = list(reversed(types))
    running: dict[Any, tuple[Kind, Any, float]] = {}
    with tqdm(total=len(types), unit="type", file=sys.stderr) as bar:
        while waiting or running:
            while waiting and len(running) < processes:
                kind = waiting.pop()
                receive, send = fork.Pipe(duplex=False)
                process = fork.Process(target=_send, args=(send, kind))
                process.start()
                send.close()
                running[receive] = (kind, process, time.monotonic())
            ready = wait(list(running), timeout=1)
            for receive in list(running):
                kind, process, begun = running[receive]
                late = time.monotonic() - begun > processes * LIMIT
                if receive not in ready and not late:
                    continue
                yield kind, _received(receive, process)
                process.kill()
                process.join()
                del running[receive]
                bar.set_postfix_str(kind.label)
                bar.update()


def _received(receive: Connection, process: Any) -> Verdicts:
    too_long = {"model": f"not finished: it takes more than {LIMIT} s"}
    if not receive.poll():
        return too_long
    try:
        return json.loads(receive.recv_bytes())
    except EOFError:
        process.join()
        ended = {"model": f"{FAULT}: its process ended with {process.exitcode}"}
        return too_long if process.exitcode == -signal.SIGXCPU else ended


def _send(send: Connection, kind: Kind) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
    sys.stdout = sys.stderr = io.StringIO()
    warnings.simplefilter("ignore")
    send.send_bytes(json.dumps(judge(kind)).encode())
    send.close()


def line(kind: Kind, verdicts: Verdicts, notes: dict[str, str]) -> str:
    """Return a line of the table; new reasons are added to `notes` under a letter."""
    if len(verdicts) == 1:
        cells = [_cell(verdicts["model"], notes), *[""] * len(COLUMNS)]
    else:
        cells = [_cell(verdicts[name], notes) for name in ("model", *COLUMNS)]
    return f"| {kind.label} | {' | '.join(cells)} |"


def _cell(said: str, notes: dict[str, str]) -> str:
    short, colon, reason = said.partition(": ")
    if not colon:
        return "yes" if said == CHECKED else said
    letter = next((letter for letter, known in notes.items() if known == reason), "")
    if not letter:
        letter = next(name for name in _letters() if name not in notes)
        notes[letter] = reason
    return {FAULT: f"**{short} {letter}**", REFUSED: letter}.get(short, f"{short} {letter}")


def _letters() -> Iterator[str]:
    for length in (1, 2, 3):
        yield from map("".join, product(string.ascii_lowercase, repeat=length))


def heading() -> str:
    """Return the first line of the table."""
    return f"| type | model | {' | '.join(name.replace('_', ' ') for name in COLUMNS)} |"


def counts(found: Mapping[Kind, Verdicts]) -> list[str]:
    """Return how many types there are, and a table of how often each method is what."""
    whole = {kind: verdicts for kind, verdicts in found.items() if len(verdicts) > 1}
    rest = Counter(v["model"].partition(": ")[0] for v in found.values() if len(v) == 1)
    others = ", ".join(f"{number} {said}" for said, number in sorted(rest.items()))
    traced = f"{len(found)} types and inputs, {len(whole)} of them traced"
    lines = [
        ", ".join(filter(None, (f"transformers {transformers.__version__}: {traced}", others))) + ".",
        "",
    ]
    lines += ["| | checked | ran | refused | fault |", "|---|---:|---:|---:|---:|"]
    for name in ("logits", "attention", *METHODS):
        kinds_of = Counter(verdicts[name].partition(": ")[0] for verdicts in whole.values())
        numbers = " | ".join(str(kinds_of[kind]) for kind in (CHECKED, RAN, REFUSED, FAULT))
        lines.append(f"| {name.replace('_', ' ')} | {numbers} |")
    return lines


def page(found: Mapping[Kind, Verdicts]) -> str:
    """Return counts, table and notes."""
    notes: dict[str, str] = {}
    body = [line(kind, found[kind], notes) for kind in sorted(found)]
    lines = [*counts(found), "", heading(), "|" + "---|" * (len(COLUMNS) + 2), *body, ""]
    lines += [f"- *{letter}*: {reason}" for letter, reason in notes.items()]
    return "\n".join(lines) + "\n"


def main(arguments: Iterable[str] | None = None) -> None:
    """Run all types and write the page, or print the verdicts on those that are named."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("types", nargs="*", help="types to look at, as the table names them")
    options = parser.parse_args(arguments)
    chosen = [kind for kind in kinds() if not options.types or kind.label in options.types]
    found: dict[Kind, Verdicts] = {}
    for kind, verdicts in judged(chosen):
        found[kind] = verdicts
        if options.types:
            print(kind.label, *(f"  {name}: {said}" for name, said in verdicts.items()), sep="\n")
    if not options.types:
        write_between(PAGE, BEGIN, END, page(found))


if __name__ == "__main__":
    main()
