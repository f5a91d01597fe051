"""Handlers of requests from the browser, which are checked first: by topic, and for numbers of the store."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets.views.wire.jobs import Job, Jobs
from attnwidgets.views.wire.thumbnails import some_thumbnails, thumbnails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from attnwidgets.views.wire.sources import Source

    Answer = tuple[Any, list[bytes]]
    Arguments = Callable[[], Iterable[Mapping[str, Any]]]
    Reply = tuple[dict[str, Any], list[bytes]]

OPENING_BYTES = 150_000
"""Size limit of the answers that travel with a view."""

LAYER_BYTES = 3_900_000
"""Size limit of a message with several heads of a layer; a single head may be larger."""

# Required fields of each kind of request: `Request` and `Question` of wire.ts.
_NEEDED: dict[str, tuple[str, ...]] = {
    "tile": ("source", "layer", "head"),
    "layer": ("source", "layer", "heads"),
    "row": ("source", "layer", "head", "row"),
    "thumbs": ("source",),
    "method": ("source",),
    "ask": ("topic",),
    "cancel": ("job",),
    "ping": (),
}
_TEXT, _NUMBER, _EITHER = "a text", "a whole number", "a whole number or a text"
_HEADS, _ARGUMENTS = "a list of whole numbers and texts", "arguments by name"
_FIELDS = {
    **dict.fromkeys(("source", "topic"), _TEXT),
    **dict.fromkeys(("layer", "row"), _NUMBER),
    **dict.fromkeys(("id", "job", "head"), _EITHER),
    "heads": _HEADS,
    "args": _ARGUMENTS,
}


@dataclass(frozen=True)
class Handler:
    """Answers a kind of request.

    A chart whose data needs no arguments is complete with `Handler(self._data)`: its answer is put into pages
    and travels with the view. A handler with arguments names those of a page in `for_page`.

    Args:
        answer: Takes the arguments by name; returns a JSON value and buffers. It must check its arguments,
            which come from a web page. An exception is reported in the view, with its message.
        runs_model: Whether it may run a model or take long. It then waits until no cell is running, reports
            progress and can be cancelled.
        for_page: Returns the arguments of the answers that a page without a kernel contains, with the keys
            in the order in which the browser writes them. By default one answer if `answer` takes no
            arguments and does not run the model, else none.
        prefetched: Returns the arguments of the answers that travel with the view, which the browser needs
            as it opens: it then opens without a request, also in a saved notebook. By default the first of
            `for_page`, or none if `answer` may run the model.
    """

    answer: Callable[..., Answer]
    runs_model: bool = False
    for_page: Arguments | None = None
    prefetched: Arguments | None = None

    def page_arguments(self) -> Iterable[Mapping[str, Any]]:
        """Return the arguments of every answer that a page without a kernel contains."""
        if self.for_page is not None:
            return self.for_page()
        return () if self.runs_model or inspect.signature(self.answer).parameters else ({},)

    def opening_arguments(self) -> Iterable[Mapping[str, Any]]:
        """Return the arguments of every answer that travels with the view."""
        if self.prefetched is not None:
            return self.prefetched()
        return () if self.runs_model else islice(self.page_arguments(), 1)


class RequestHandlers:
    """The handlers of a view, by topic; replies are `QuestionReply` of wire.ts.

    Args:
        handlers: By topic, the name that the browser asks by.
        send: Takes a reply and its buffers.
    """

    def __init__(
        self, handlers: Mapping[str, Handler], send: Callable[[dict[str, Any], Sequence[bytes]], None]
    ) -> None:
        self._handlers = handlers
        self._send = send
        self._jobs = Jobs(lambda reply: send(reply, ()))

    def replace(self, handlers: Mapping[str, Handler]) -> None:
        """Answer with other handlers from now on."""
        self._handlers = handlers

    def receive(self, content: Any) -> None:
        """Handle a message from the browser; messages of other kinds are ignored."""
        if not isinstance(content, dict) or content.get("kind") not in ("cancel", "ask"):
            return
        complaint = fault(content)
        if complaint is not None:
            self._send(complaint, ())
        elif content["kind"] == "cancel":
            self._jobs.cancel(content["job"])
        else:
            number, topic, args = content.get("id"), content["topic"], content.get("args") or {}
            handler = self._handlers.get(topic)
            if handler is not None and handler.runs_model:
                work = partial(self._reply, number, topic, args)
                self._jobs.submit(Job(number, topic, args, topic.replace("_", " "), work))
                return
            try:
                self._reply(number, topic, args)
            except Exception as error:  # noqa: BLE001 - the view reports every error, with its message
                self._send({"kind": "error", "id": number, "message": words(error)}, ())

    def _reply(self, number: Any, topic: str, args: Mapping[str, Any]) -> None:
        meta, buffers = self.answer(topic, args)
        lengths = [len(part) for part in buffers]  # by which the browser knows that all of it came
        self._send({"kind": "answer", "id": number, "meta": meta, "lengths": lengths}, buffers)

    def answer(self, topic: str, args: Mapping[str, Any]) -> Answer:
        """Return the answer to a request.

        Raises:
            LookupError: The topic is unknown.
        """
        handler = self._handlers.get(topic)
        if handler is None:
            raise LookupError(f"this view answers nothing about {topic!r}.{suggest(topic, self._handlers)}")
        return handler.answer(**args)

    def for_page(self) -> Iterable[tuple[str, dict[str, Any], Callable[[], Answer]]]:
        """Yield topic, arguments and a function for the answer, for every answer that a page contains."""
        for topic, handler in self._handlers.items():
            for args in handler.page_arguments():
                yield topic, dict(args), partial(handler.answer, **args)

    def opening_for_page(self) -> list[tuple[str, dict[str, Any]]]:
        """Return topic and arguments of those that a view needs as it opens: of every topic the first."""
        return [
            (topic, dict(args))
            for topic, handler in self._handlers.items()
            for args in (*islice(handler.page_arguments(), 1), *handler.opening_arguments())
        ]

    def opening(self, room: int = OPENING_BYTES) -> bytes | None:
        """Return the prefetched answers: `Opening` of wire.ts in JSON, then its buffers; None without any.

        An answer that exceeds the rest of `room` bytes, or fails, is left out: the browser then asks for it
        and reports the error.
        """
        lines: list[str] = []
        data: list[bytes] = []
        requests = [
            (name, item, args) for name, item in self._handlers.items() for args in item.opening_arguments()
        ]
        for topic, handler, args in requests:
            try:
                meta, buffers = handler.answer(**args)
                lengths = [len(part) for part in buffers]
                entry = {"topic": topic, "args": dict(args), "meta": meta, "lengths": lengths}
                line = json.dumps(entry, separators=(",", ":"), allow_nan=False)
            except Exception:  # noqa: BLE001, S112 - it is requested again, and reported in the view
                continue
            if len(line) + sum(lengths) <= room:
                room -= len(line) + sum(lengths)
                lines.append(line)
                data.extend(buffers)
        if not lines:
            return None
        head = f"[{','.join(lines)}]".encode()
        return b"".join([len(head).to_bytes(4, "little"), head, *data])

    def close(self) -> None:
        """Stop the running computation: the view is closed."""
        self._jobs.close()


def reply(request: dict[str, Any], source: Callable[[str], Source]) -> Reply:
    """Return the Reply of wire.ts to a Request, and its buffers; an error is a reply as well.

    Args:
        request: The message from the browser; "kind" names what is requested.
        source: Returns the source of a name, or raises a LookupError if it is no longer shown.
    """
    complaint = fault(request)
    if complaint is not None:
        return complaint, []
    kind, number = request["kind"], request.get("id")
    if kind == "ping":
        return {"kind": "pong", "id": number}, []
    read = {"tile": _tile, "layer": _layer, "row": _row, "thumbs": _thumbs}.get(kind)
    if read is None:
        return {"kind": "error", "id": number, "message": f"unknown request {kind!r}"}, []
    try:
        return read(source(request.get("source", "")), request)
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        return {"kind": "error", "id": number, "message": words(error)}, []


def words(error: BaseException) -> str:
    """Return the message of an error."""
    # str() of a KeyError is its argument's repr.
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error) or type(error).__name__


def _tile(source: Source, request: dict[str, Any]) -> Reply:
    tile = source.tile(request["layer"], request["head"])
    return {"kind": "tile", "id": request["id"], **tile.meta()}, [tile.data]


def _layer(source: Source, request: dict[str, Any]) -> Reply:
    tiles: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    parts: list[bytes] = []
    length = 0
    for head in request["heads"]:
        if length and length + source.tile_bytes > LAYER_BYTES:  # the browser asks for the rest
            break
        try:
            tile = source.tile(request["layer"], head)
        except IndexError as error:
            refused.append({"head": head, "message": str(error)})
            continue
        tiles.append({**tile.meta(), "offset": length, "length": len(tile.data)})
        parts.append(tile.data)
        length += len(tile.data)
    matrix = {"source": source.id, "layer": request["layer"], "tiles": tiles, "refused": refused}
    return {"kind": "layer", "id": request["id"], **matrix}, [b"".join(parts)]


def _row(source: Source, request: dict[str, Any]) -> Reply:
    if request["layer"] not in source.ready and request["layer"] in source.layers:
        raise ValueError(f"layer {request['layer']} is not computed yet.")
    row = int(request["row"])
    values = source.row(request["layer"], request["head"], row)[None]
    values = source.where_compared(values, request["layer"], slice(row, row + 1))
    matrix = {"source": source.id, "layer": request["layer"], "head": request["head"], "row": row}
    return {"kind": "row", "id": request["id"], **matrix}, [np.asarray(values, dtype="<f4").tobytes()]


def _thumbs(source: Source, request: dict[str, Any]) -> Reply:
    special = bool(request.get("special"))
    if source.parts:
        layer, head = map(int, request.get("from") or (0, 0))
        some = some_thumbnails(source, layer, head, special=special)
        return {"kind": "thumbs", "id": request["id"], **some.meta()}, [some.data]
    made = thumbnails(source, special=special)
    if made is None:
        raise ValueError(f"{source.id} has too many layers and heads for thumbnails.")
    return {"kind": "thumbs", "id": request["id"], **made.meta()}, [made.data]


def fault(request: Any) -> dict[str, Any] | None:
    """Return the reply to a malformed request, which says why; None if every field has its type."""
    fields = request if isinstance(request, dict) else {}
    kind, number = fields.get("kind"), fields.get("id")
    if not isinstance(kind, str) or kind not in _NEEDED:
        message = f"unknown request {kind!r:.80}"
    else:
        missing = [name for name in _NEEDED[kind] if name not in fields]
        wrong = [
            name for name, expected in _FIELDS.items() if name in fields and not _is(expected, fields[name])
        ]
        if not missing and not wrong:
            return None
        name = (missing or wrong)[0]
        problem = "is missing" if missing else f"is {fields[name]!r:.80}"
        message = f"{name} of a request for {kind!r} must be {_FIELDS[name]}, and {problem}"
    return {"kind": "error", "id": number if _is(_EITHER, number) else None, "message": message}


def _is(expected: str, value: Any) -> bool:
    if expected == _HEADS:
        return isinstance(value, list) and all(_is(_EITHER, head) for head in value)
    if expected == _ARGUMENTS:
        return value is None or (isinstance(value, dict) and all(isinstance(name, str) for name in value))
    whole = isinstance(value, int) and not isinstance(value, bool)
    return (whole and expected != _TEXT) or (isinstance(value, str) and expected != _NUMBER)
