"""Where in a text its state is read: at one token, or as the mean over several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted, suggest
from attnwidgets._selecting import position

if TYPE_CHECKING:
    from attnwidgets.concepts.batches import Inputs, Read

    At = str | int | Sequence[Any]

NAMED = ("cls", "mean", "last", "mask", "tokens")


def rows_of(inputs: Inputs, at: At) -> list[list[tuple[int, ...]]]:
    """Return the rows of states of every input: for each row, the tokens whose states are averaged.

    There is one row for every text, and for "tokens" one for each of its tokens that is not special.
    """
    if isinstance(at, str) and at == "tokens":
        return [[(number,) for number in _ordinary(inputs, read)] for read in inputs.reads]
    return [[places] for places in places_of(inputs, at)]


def _ordinary(inputs: Inputs, read: Read) -> list[int]:
    if read.sample is not None and read.sample.text is not None:
        special = read.sample.text.special
    else:
        special = inputs.trace_of(read).axes(inputs.stack)[0].units["token"].special
    return [number for number, is_special in enumerate(special) if not is_special]


def places_of(inputs: Inputs, at: At) -> list[tuple[int, ...]]:
    """Return the tokens whose states are averaged, for every input.

    Args:
        inputs: The inputs.
        at: "cls", "mean", "last", "mask", the number of a token, or one entry for every input: the number of
            a token, a word, or characters (start, stop) of the text.

    Raises:
        ValueError: If `at` is unknown, has not one entry for every input, or names what is not in a text.
        IndexError: If a token is out of range.
    """
    if isinstance(at, str):
        if at not in NAMED:
            raise ValueError(
                f"at {at!r} is not {', '.join(map(repr, NAMED))} or the number of a "
                f"token.{suggest(at, NAMED)} Words are given one for every text: at=['keys', 'door', ...]."
            )
        return [_named(inputs, read, at) for read in inputs.reads]
    if isinstance(at, Sequence):
        if len(at) != len(inputs.reads):
            raise ValueError(f"at has {len(at)} entries, and there are {len(inputs.reads)} texts.")
        return [_own(inputs, read, each) for read, each in zip(inputs.reads, at, strict=True)]
    return [(_index(inputs, read, at),) for read in inputs.reads]


def _named(inputs: Inputs, read: Read, at: str) -> tuple[int, ...]:
    if at == "mean":
        return tuple(range(read.length))
    if at == "mask":
        return (_mask(inputs, read),)
    return (0,) if at == "cls" else (read.length - 1,)


def _own(inputs: Inputs, read: Read, each: Any) -> tuple[int, ...]:
    if isinstance(each, str):
        text = inputs.names[read.index]
        start = text.find(each)
        if start < 0 or not each:
            raise ValueError(f"at[{read.index}] is {quoted(each)}, which is not in {quoted(text)}.")
        return _covering(inputs, read, start, start + len(each))
    if isinstance(each, Sequence):
        start, stop = each
        return _covering(inputs, read, int(start), int(stop))
    return (_index(inputs, read, each),)


def _index(inputs: Inputs, read: Read, number: Any) -> int:
    try:
        return position(number, range(read.length), "token")
    except IndexError as error:
        raise IndexError(f"at, texts[{read.index}] {quoted(inputs.names[read.index])}: {error}") from error


def _covering(inputs: Inputs, read: Read, start: int, stop: int) -> tuple[int, ...]:
    """Return the tokens that share characters with a span."""
    spans = _spans(inputs, read)
    found = tuple(i for i, (begin, end) in enumerate(spans) if begin < stop and end > start and end > begin)
    if not found:
        where = quoted(inputs.names[read.index])
        raise ValueError(f"at[{read.index}]: characters {start} to {stop} hold no token of {where}.")
    return found


def _spans(inputs: Inputs, read: Read) -> tuple[tuple[int, int], ...]:
    if read.sample is None or read.sample.text is None:
        raise ValueError(
            f"at[{read.index}]: words and characters are found in texts, and {inputs.names[read.index]!r} "
            "was given as a trace, or is not what this stack reads; give the number of a token."
        )
    return read.sample.text.spans


def _mask(inputs: Inputs, read: Read) -> int:
    wanted = getattr(inputs.first.tokenizer, "mask_token_id", None)
    given = None if read.trace is None else read.trace.input_ids
    ids = list(read.sample.ids or ()) if read.sample is not None else [] if given is None else given.tolist()
    if wanted is None or wanted not in ids:
        why = "the tokenizer has no mask token" if wanted is None else "it holds no mask token"
        raise ValueError(f"at 'mask', texts[{read.index}] {quoted(inputs.names[read.index])}: {why}.")
    return ids.index(wanted)
