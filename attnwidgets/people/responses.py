"""Responses: the answers of people, a row an answer, and schedules: who sees which item, and when.

A person's schedule follows from the code (twin: js/src/views/people/schedule.ts).

A study with n items and C cells (conditions, or pairs of them) has 4 n C schedules. A schedule says by how
much the conditions are shifted along the items, which row of a Williams square orders the items, whether the
row is read backwards, and which side a pair begins with. Over all schedules every item stands in every cell
at every position equally often, and on either side; C people who differ in the shift alone are a Latin
square.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._tables import Table
from attnwidgets.figures.html_tables import first_rows
from attnwidgets.people.kinds import score

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from attnwidgets._tables import Columns
    from attnwidgets.people.analysis import Analysis
    from attnwidgets.people.study import Study

COLUMNS = (
    *("person", "role", "item", "condition", "other", "position", "side", "answer", "score"),
    *("passed", "first_ms", "ms"),
)
"""The columns of a row."""

_SHOWN = 10

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""The characters of codes, without those that look alike: i, l and 1, o and 0."""

CODE_LENGTH = 8
_WORD = 0xFFFFFFFF
_FNV = (0x811C9DC5, 0x01000193)  # offset and prime of FNV-1a, 32 bits
_OTHER = 0x1B873593  # where the second half of a digest begins


class Responses(Table):
    """Answers of people to a study; made by `aw.people.read_responses` and by `study.simulate`.

    Attributes:
        rows: A dict an answer, in the order in which people answered: person (a code), role ("practice",
            "item", "check"), item, condition and other (the second of a pair, or ""), position from 0, side
            (1: the first of a pair stood second), answer, score (see `Analysis`; None without a right
            answer), passed (of a check), first_ms and ms (milliseconds until the first choice, and until the
            answer was sent).
        study: The study, or None.
        notes: Problems in the files, a sentence each.
        set_aside: Rows that do not count, with the file and the reason under "file" and "why".
        kind: The kind of the study.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        study: Study | None = None,
        kind: str = "",
        notes: Sequence[str] = (),
        set_aside: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.rows = tuple(rows)
        self.study = study
        self.kind = kind or (study.kind if study is not None else "")
        self.notes = tuple(notes)
        self.set_aside = tuple(set_aside)

    @property
    def people(self) -> tuple[str, ...]:
        """The people's codes, in the order in which they were read."""
        return tuple(dict.fromkeys(row["person"] for row in self.rows))

    @property
    def inattentive(self) -> tuple[str, ...]:
        """The codes of people who failed an attention check."""
        failed = {row["person"] for row in self.rows if row["role"] == "check" and not row["passed"]}
        return tuple(person for person in self.people if person in failed)

    def without(self, *people: str) -> Responses:
        """Return the responses without those of some people.

        Args:
            people: Codes to leave out.

        Raises:
            ValueError: The person is unknown.
        """
        unknown = set(people) - set(self.people)
        if unknown:
            raise ValueError(f"unknown person {min(unknown)!r}; `.people` lists all {len(self.people)}.")
        rows = [row for row in self.rows if row["person"] not in people]
        return Responses(rows, study=self.study, kind=self.kind, notes=self.notes, set_aside=self.set_aside)

    def balance(self) -> dict[tuple[str, str, str], int]:
        """Return how often every item was answered in every condition: counts by (item, condition, other)."""
        rows = [row for row in self.rows if row["role"] == "item"]
        counts = Counter((row["item"], row["condition"], row["other"]) for row in rows)
        items = dict.fromkeys(row["item"] for row in rows)
        cells = dict.fromkeys((row["condition"], row["other"]) for row in rows)
        keys = [(item, *cell) for item in items for cell in cells]
        return {key: counts[key] for key in keys}

    def analyse(
        self,
        *,
        reference: str | None = None,
        level: float = 0.95,
        resamples: int = 2000,
        keep_inattentive: bool = False,
        seed: int = 0,
    ) -> Analysis:
        """Return means with intervals, and differences between conditions, see `Analysis`.

        Args:
            reference: The condition with which all other conditions are compared; None: "none", else
                "random", else the first.
            level: Coverage of the intervals, above 0.5 and below 1.
            resamples: Resamples of the bootstrap, and permutations, at least 100.
            keep_inattentive: Whether people count who failed an attention check.
            seed: Seed of resamples and permutations.

        Raises:
            ValueError: Fewer than two people are left, no answer has a score, a condition is unknown, or an
                option is out of range.
        """
        from attnwidgets.people.analysis import analyse

        return analyse(self, reference, level, resamples, keep_inattentive=keep_inattentive, seed=seed)

    def _columns(self) -> Iterator[Columns]:
        yield {name: [row[name] for row in self.rows] for name in COLUMNS}

    def __repr__(self) -> str:
        counts = Counter(row["role"] for row in self.rows)
        parts = [f"{counts['item']:,} answers"]
        if counts["check"]:
            parts.append(f"{counts['check']} attention checks")
        if self.set_aside:
            parts.append(f"{len(self.set_aside)} set aside")
        return f"<Responses of {len(self.people)} people: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return first_rows(self.to_rows(), _SHOWN)


def row_of(
    study: Study, person: str, turn: Turn | None, position: int, answer: Any, **times: float | None
) -> dict[str, Any]:
    """Return the row of an answer to an item, or, without a turn, to the check number `position`."""
    if turn is None:
        entries: dict[str, Any] = {
            "role": "check", "item": f"check {position}", "condition": "", "other": "", "side": 0,
            "score": None, "passed": answer == study.checks[position],
        }  # fmt: skip
    else:
        condition, second = study.cell_names(turn.cell)
        entries = {
            "role": "item", "item": study.ids[turn.item], "condition": condition, "other": second,
            "side": turn.side, "score": score(study.kind, study.truths[turn.item], answer, turn.side),
            "passed": None,
        }  # fmt: skip
    row = {
        "first_ms": None,
        "ms": None,
        **entries,
        **times,
        "person": person,
        "position": position,
        "answer": answer,
    }
    return {name: row[name] for name in COLUMNS}


class Schedule(NamedTuple):
    """The parts of the order in which a person sees items and cells, see the module's description."""

    shift: int
    side: int
    mirrored: int
    row: int


class Turn(NamedTuple):
    """An item in the cell and on the side in which a person sees it."""

    item: int
    cell: int
    side: int  # 1: the first of a pair stands second


def hashed(text: str, start: int = _FNV[0]) -> int:
    """Return a hash of 32 bits: FNV-1a with the last mixing of MurmurHash3, which scatters its low bits."""
    value = start
    for byte in text.encode():
        value = (value ^ byte) * _FNV[1] & _WORD
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    return value ^ value >> 16


def digest(text: str) -> str:
    """Return 16 hexadecimal digits that change with the text. They are not a signature."""
    return f"{hashed(text):08x}{hashed(text, _OTHER):08x}"


def schedule_number(code: str, salt: str, items: int, cells: int) -> int:
    """Return the number of a code's schedule in the study with this hash (`salt`): 0 to 4 items cells - 1."""
    return hashed(f"{salt}:{code}") % (4 * items * cells)


def schedule_of_code(code: str, salt: str, items: int, cells: int) -> Schedule:
    """Return the schedule of a code in the study with this hash (`salt`)."""
    rest, shift = divmod(schedule_number(code, salt, items, cells), cells)
    rest, side = divmod(rest, 2)
    row, mirrored = divmod(rest, 2)
    return Schedule(shift, side, mirrored, row)


def turns_of(schedule: Schedule, items: int, cells: int, *, between: bool) -> list[Turn]:
    """Return the turns of a person in their order, one for each item."""
    # The first row of a Williams square is 0, 1, n-1, 2, n-2, ...; the others add a number modulo n.
    zigzag = [(k + 1) // 2 if k % 2 else (items - k // 2) % items for k in range(items)]
    order = [(step + schedule.row) % items for step in zigzag]
    if schedule.mirrored:
        order.reverse()
    return [
        Turn(
            item,
            schedule.shift if between else (item + schedule.shift) % cells,
            (item // cells + schedule.side) % 2,
        )
        for item in order
    ]


def balanced_codes(count: int, salt: str, items: int, cells: int, seed: int) -> list[str]:
    """Return codes in blocks of `cells` people, each block a Latin square; all schedules come up in turn."""
    rng = np.random.default_rng(seed)
    rest = rng.permutation(4 * items)  # side, direction and row, the same for the people of a block
    numbers = [int(rest[person // cells % len(rest)]) * cells + person % cells for person in range(count)]
    # A schedule is a hash of the code: codes are drawn until each schedule has a code, and spare ones are
    # stored for later people.
    spare: dict[int, list[str]] = {}
    used: set[str] = set()
    codes = []
    for number in numbers:
        while not spare.get(number):
            code = random_code(rng)
            if code not in used:
                used.add(code)
                spare.setdefault(schedule_number(code, salt, items, cells), []).append(code)
        codes.append(spare[number].pop(0))
    return codes


def random_code(rng: np.random.Generator) -> str:
    """Return a random code of `CODE_LENGTH` characters."""
    return "".join(ALPHABET[i] for i in rng.integers(len(ALPHABET), size=CODE_LENGTH))


def check_positions(items: int, checks: int) -> list[int]:
    """Return after how many items each attention check comes: evenly spread, and none at the end."""
    return [round_half_up((j + 1) * items, checks + 1) for j in range(checks)]


def round_half_up(numerator: int, denominator: int) -> int:
    """Return a quotient of whole numbers, rounded as JavaScript's `Math.round` does."""
    return (2 * numerator + denominator) // (2 * denominator)
