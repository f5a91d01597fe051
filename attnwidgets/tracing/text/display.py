"""Display strings of tokens: decoded, with visible whitespace and whole characters."""

from __future__ import annotations

import json
import unicodedata
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SPACE, NEWLINE, TAB, RETURN = "␣", "↵", "⇥", "␍"
CONTINUED = "⋯"
"""Shown for a token with only the later bytes of a character, which its first token shows whole."""
UNKNOWN = "\ufffd"
"""Replaces half a character."""
_VISIBLE = str.maketrans(
    {" ": SPACE, "\n": NEWLINE, "\t": TAB, "\r": RETURN, "\u00a0": "⍽", "\u3000": "□", "\u200b": "⟨ZWSP⟩"}
)
_BLANKS = set("▁·␣↵⇥␍⍽□ ")
"""Marks that stand for blanks in labels, also those of tokenizers."""
_ZWJ = "\u200d"
_EXTENDS = ("\u200c", _ZWJ)  # invisible joiners
_JOINED = "##"


def well_formed(text: str) -> str:
    """Return text that can be encoded: halves of a character are joined, a lone half becomes `UNKNOWN`.

    Surrogates come from JSON, from file names and from texts that were cut between them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def visible(text: str) -> str:
    """Return text with its whitespace replaced by visible symbols."""
    return text.translate(_VISIBLE)


def is_blank(label: str) -> bool:
    """Return whether a label shows blanks and line ends alone, or nothing."""
    return _BLANKS.issuperset(label)


def graphemes(text: str) -> list[tuple[int, int]]:
    """Return the spans of user-perceived characters: letter with marks, emoji sequence, flag."""
    spans: list[tuple[int, int]] = []
    flags = 0
    for i, char in enumerate(text):
        joins = bool(spans) and (
            char in _EXTENDS
            or unicodedata.category(char) in ("Mn", "Me", "Mc")
            or "\U0001f3fb" <= char <= "\U0001f3ff"
            or "\U000e0020" <= char <= "\U000e007f"  # tags, which spell the flag of a region
            or text[i - 1] == _ZWJ
        )
        if "\U0001f1e6" <= char <= "\U0001f1ff":
            flags += 1
            joins = joins or flags % 2 == 0
        else:
            flags = 0
        if joins:
            spans[-1] = (spans[-1][0], i + 1)
        else:
            spans.append((i, i + 1))
    return spans


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's map from printable characters to bytes: printable Latin-1 maps to itself."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_alphabet()


@dataclass(frozen=True)
class Piece:
    """A token and its bytes; a special token, which is not part of the text, has none.

    Args:
        token: The token as the vocabulary spells it.
        data: Its UTF-8 bytes in the text, spaces included; None for a special token.
    """

    token: str
    data: bytes | None


def scheme_of(tokenizer: Any, tokens: Sequence[str] = ()) -> str:
    """Return how tokens spell text: "bytes", "metaspace", "wordpiece", "suffix" (`</w>`) or "plain".

    It is read from a fast tokenizer's decoder, else from the spelling of the tokens.
    """
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is not None:
        described = json.dumps(json.loads(decoder.__getstate__()), ensure_ascii=False)
        for mark, scheme in (
            ("ByteLevel", "bytes"),
            ("WordPiece", "wordpiece"),
            ("Metaspace", "metaspace"),
            ("▁", "metaspace"),
            ("BPEDecoder", "suffix"),
        ):
            if mark in described:
                return scheme
    if any(token.startswith(("Ġ", "Ċ")) for token in tokens):
        return "bytes"
    if any(token.startswith("▁") for token in tokens):
        return "metaspace"
    if any(token.endswith("</w>") for token in tokens):
        return "suffix"
    if any(token.startswith(_JOINED) and len(token) > len(_JOINED) for token in tokens):
        return "wordpiece"
    return "plain"


def piece(token: str, scheme: str, *, first: bool = False) -> Piece:
    """Return a non-special token as bytes of text."""
    text = token if first else f" {token}"
    if scheme == "bytes":
        spelled = token.removesuffix("</w>") + "Ġ" * token.endswith("</w>")
        if all(char in _BYTES for char in spelled):
            return Piece(token, bytes(_BYTES[char] for char in spelled))
        text = token
    elif scheme == "metaspace":
        if len(token) == len("<0xAA>") and token.startswith("<0x") and token.endswith(">"):
            return Piece(token, bytes([int(token[3:5], 16)]))
        text = token.replace("▁", " ")
    elif scheme == "suffix":
        text = token.replace("</w>", " ")
    elif scheme == "wordpiece" and token.startswith(_JOINED) and len(token) > len(_JOINED):
        text = token.removeprefix(_JOINED)
    return Piece(token, well_formed(text).encode())


def pieces_of(tokens: Sequence[str], special: Sequence[bool], scheme: str) -> list[Piece]:
    """Return every token as a Piece; special tokens have no bytes."""
    pieces: list[Piece] = []
    for token, is_special in zip(tokens, special, strict=True):
        first = not pieces or pieces[-1].data is None
        pieces.append(Piece(token, None) if is_special else piece(token, scheme, first=first))
    return pieces


def _decode(data: bytes) -> tuple[str, list[int]]:
    """Return the text of UTF-8 bytes and each character's first byte; stray bytes become ⟨XX⟩."""
    text: list[str] = []
    starts: list[int] = []
    at = 0
    while at < len(data):
        for size in (1, 2, 3, 4):
            try:
                char = data[at : at + size].decode("utf-8")
            except UnicodeDecodeError:
                continue
            break
        else:
            char, size = f"⟨{data[at]:02X}⟩", 1
        text.extend(char)
        starts.extend([at] * len(char))
        at += size
    return "".join(text), starts


def reassemble(pieces: Sequence[Piece]) -> tuple[str, list[tuple[int, int]]]:
    """Return the text that tokens spell and their character spans; tokens may share a character.

    Runs between special tokens are decoded separately; a special token has an empty span.
    """
    text = ""
    spans: list[tuple[int, int]] = [(0, 0)] * len(pieces)
    run: list[int] = []
    for index in range(len(pieces) + 1):
        data = pieces[index].data if index < len(pieces) else None
        if data is not None:
            run.append(index)
            continue
        whole = b"".join(pieces[i].data or b"" for i in run)
        decoded, starts = _decode(whole)
        begin = 0
        for i in run:
            end = begin + len(pieces[i].data or b"")
            inside = _touched(starts, begin, end, len(whole))
            if inside:
                spans[i] = (len(text) + inside[0], len(text) + inside[-1] + 1)
            begin = end
        text += decoded
        run = []
        if index < len(pieces):
            spans[index] = (len(text), len(text))
    return text, spans


def _touched(starts: Sequence[int], begin: int, end: int, total: int) -> range:
    """Return the characters that lie in bytes [begin, end), wholly or in part."""
    if begin >= end or not starts:
        return range(0)
    first = max(bisect_right(starts, begin) - 1, 0)
    return range(bisect_left(starts, starts[first]), bisect_left(starts, min(end, total)))


def display(pieces: Sequence[Piece], scheme: str) -> tuple[str, ...]:
    """Return the display string of each token.

    WordPiece tokens stay as the vocabulary spells them ("##ing" continues a word). In other schemes bytes are
    decoded; a character, accent or emoji split over tokens is shown whole at its first token and as "⋯" at
    later tokens.
    """
    if scheme in ("wordpiece", "plain"):
        return tuple(visible(p.token) or "∅" for p in pieces)
    text, spans = reassemble(pieces)
    owner: dict[int, int] = {}
    for index, (begin, end) in enumerate(spans):
        for char in range(begin, end):
            owner.setdefault(char, index)
    shown = [""] * len(pieces)
    for begin, end in graphemes(text):
        shown[owner[begin]] += text[begin:end]
    return tuple(
        visible(p.token) if p.data is None else (visible(label) or (CONTINUED if p.data else "∅"))
        for p, label in zip(pieces, shown, strict=True)
    )


def joined(labels: Sequence[str], every: Sequence[str]) -> str:
    """Return consecutive labels as readable text: pieces of words joined, spaces between words.

    Args:
        labels: Display strings that follow each other.
        every: All labels of their axis, which show whether spaces are spelled.
    """
    marked = any(label.startswith(SPACE) for label in every)
    written = ""
    for label in labels:
        if label.startswith(_JOINED):
            written += label.removeprefix(_JOINED)
        elif label.startswith(SPACE):
            written += f" {label[1:]}"
        else:
            written += label if marked or not written else f" {label}"
    return written.strip() or " ".join(labels)
