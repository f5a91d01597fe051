"""Who sees what, in which order: it follows from a person's code (twin: js/src/views/people/schedule.ts).

A study with n items and C cells (conditions, or pairs of them) has 4 n C places. A place says by how much
the conditions are shifted along the items, which row of a Williams square orders them, whether it is read
backwards, and which side a pair begins with. Over all places every item stands in every cell at every
position equally often, and on either side; C people who differ in the shift alone are a Latin square.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""What codes consist of: nothing that is read as something else."""
CODE_LENGTH = 8
_WORD = 0xFFFFFFFF
_FNV = (0x811C9DC5, 0x01000193)  # offset and prime of FNV-1a, 32 bits
_OTHER = 0x1B873593  # where the second half of a digest begins


class Place(NamedTuple):
    """What a person's code decides."""

    shift: int
    side: int
    mirrored: int
    row: int


class Turn(NamedTuple):
    """One item as one person sees it."""

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


def size_of(items: int, cells: int) -> int:
    """Return the number of places."""
    return 4 * items * cells


def number_of(place: Place, cells: int) -> int:
    """Return the number of a place, the inverse of `place_of`."""
    return place.shift + cells * (place.side + 2 * (place.mirrored + 2 * place.row))


def place_of(number: int, cells: int) -> Place:
    """Return the place with this number."""
    rest, shift = divmod(number, cells)
    rest, side = divmod(rest, 2)
    row, mirrored = divmod(rest, 2)
    return Place(shift, side, mirrored, row)


def place_of_code(code: str, salt: str, items: int, cells: int) -> Place:
    """Return the place of a code in the study with this hash (`salt`)."""
    return place_of(hashed(f"{salt}:{code}") % size_of(items, cells), cells)


def turns_of(place: Place, items: int, cells: int, *, between: bool) -> list[Turn]:
    """Return the items of a person in their order."""
    zigzag = [(k + 1) // 2 if k % 2 else (items - k // 2) % items for k in range(items)]
    order = [(step + place.row) % items for step in zigzag]
    if place.mirrored:
        order.reverse()
    return [
        Turn(
            rank,
            place.shift if between else (rank + place.shift) % cells,
            (rank // cells + place.side) % 2,
        )
        for rank in order
    ]


def balanced_codes(count: int, salt: str, items: int, cells: int, seed: int) -> list[str]:
    """Return codes in blocks of `cells` people, each block a Latin square; all places come up in turn."""
    rng = np.random.default_rng(seed)
    rest = rng.permutation(4 * items)  # side, direction and row, the same for the people of a block
    wanted = [int(rest[person // cells % len(rest)]) * cells + person % cells for person in range(count)]
    found: dict[int, list[str]] = {}
    used: set[str] = set()
    codes = []
    for number in wanted:
        while not found.get(number):
            code = random_code(rng)
            if code not in used:
                used.add(code)
                found.setdefault(hashed(f"{salt}:{code}") % size_of(items, cells), []).append(code)
        codes.append(found[number].pop(0))
    return codes


def random_code(rng: np.random.Generator) -> str:
    """Return a random code."""
    return "".join(ALPHABET[i] for i in rng.integers(len(ALPHABET), size=CODE_LENGTH))


def check_positions(items: int, checks: int) -> list[int]:
    """Return after how many items each attention check comes: evenly spread, and none at the end."""
    return [round_half_up((j + 1) * items, checks + 1) for j in range(checks)]


def round_half_up(numerator: int, denominator: int) -> int:
    """Return a quotient of whole numbers, rounded as JavaScript's `Math.round` does."""
    return (2 * numerator + denominator) // (2 * denominator)
