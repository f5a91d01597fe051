"""Text in the file of a picture: comments, authors, and whatever else programs write into it."""

from __future__ import annotations

import base64
import binascii
import re
import zlib

_PNG = b"\x89PNG\r\n\x1a\n"
_WORDS = re.compile(rb"[\t\n\r -~]{6,}")
_MOST_BYTES = 1_000_000


def text_of_picture(encoded: str) -> str:
    """Return the text in a picture's file, given in base64: text chunks of PNG, else runs of characters."""
    try:
        data = base64.b64decode(encoded, validate=False)
    except binascii.Error:
        return encoded
    if not data.startswith(_PNG):
        return "\n".join(run.decode("ascii") for run in _WORDS.findall(data))
    texts, at = [], len(_PNG)
    while at + 8 <= len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if kind in (b"tEXt", b"zTXt", b"iTXt", b"eXIf"):
            texts.append(_text_of_chunk(kind, data[at + 8 : at + 8 + size]))
        at += 12 + size
    return "\n".join(texts)


def _text_of_chunk(kind: bytes, content: bytes) -> str:
    name, _, rest = content.partition(b"\0")
    if (kind == b"iTXt" and rest[:1] == b"\1") or kind == b"zTXt":
        packed = rest[1:] if kind == b"zTXt" else rest[2:].split(b"\0", 2)[-1]
        try:
            rest = zlib.decompressobj().decompress(packed, _MOST_BYTES)
        except zlib.error:
            rest = packed
    return f"{name.decode('latin-1')} {rest.replace(bytes(1), b' ').decode('utf-8', 'replace')}"
