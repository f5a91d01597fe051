"""Questions that a view's browser side asks its Python side, beyond the matrices of the store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.views.wire.jobs import Job, Jobs
from attnwidgets.views.wire.validation import fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Answer = tuple[Any, list[bytes]]
    Arguments = Callable[[], Iterable[Mapping[str, Any]]]


def _none() -> tuple[dict[str, Any], ...]:
    return ()


def first(arguments: Arguments) -> Arguments:
    """Return only the first of the arguments."""
    return lambda: islice(arguments(), 1)


@dataclass(frozen=True)
class Handler:
    """One thing that can be asked.

    Args:
        answer: Takes the arguments by name; returns what JSON can hold, and buffers. It checks what it is
            given: arguments come from a page. What it raises is told in the view, in words.
        runs_model: Whether it may run a model or take long: it then waits until no cell is running, tells
            its progress and can be cancelled.
        for_page: Returns the arguments that a page without a kernel holds the answers to; none by default.
            Their keys stand in the order in which the browser writes them.
        at_once: Of these, what a view asks as it opens: the answers travel with it, so that it opens without
            a question, and a saved notebook shows it.
    """

    answer: Callable[..., Answer]
    runs_model: bool = False
    for_page: Arguments = _none
    at_once: Arguments = _none


class Questions:
    """The topics of one view, and what becomes of questions about them (`QuestionReply` of wire.ts).

    Args:
        topics: By name.
        send: Takes a reply and its buffers.
    """

    def __init__(
        self, topics: Mapping[str, Handler], send: Callable[[dict[str, Any], Sequence[bytes]], None]
    ) -> None:
        self._topics = topics
        self._send = send
        self._jobs = Jobs(lambda reply: send(reply, ()))

    def receive(self, content: Any) -> None:
        """Take in what the browser sent; what is no question is left alone."""
        if not isinstance(content, dict) or content.get("kind") not in ("cancel", "ask"):
            return
        told = fault(content)
        if told is not None:
            self._send(told, ())
        elif content["kind"] == "cancel":
            self._jobs.cancel(content["job"])
        else:
            number, name, args = content.get("id"), content["topic"], content.get("args") or {}
            topic = self._topics.get(name)
            if topic is not None and topic.runs_model:
                self._jobs.submit(
                    Job(number, name, args, name.replace("_", " "), lambda: self._answer(number, name, args))
                )
                return
            try:
                self._answer(number, name, args)
            except Exception as error:  # noqa: BLE001 - whatever is wrong is told in the view, in words
                message = str(error) or type(error).__name__
                self._send({"kind": "error", "id": number, "message": message}, ())

    def _answer(self, number: Any, name: str, args: Mapping[str, Any]) -> None:
        meta, buffers = self.ask(name, args)
        self._send({"kind": "answer", "id": number, "meta": meta}, buffers)

    def ask(self, name: str, args: Mapping[str, Any]) -> Answer:
        """Return the answer to a question.

        Raises:
            LookupError: There is no such topic.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise LookupError(f"this view answers nothing about {name!r}.{suggest(name, self._topics)}")
        return topic.answer(**args)

    def for_page(self) -> Iterable[tuple[str, dict[str, Any], Callable[[], Answer]]]:
        """Yield topic, arguments and a function for the answer of all that a page without a kernel holds."""
        for name, topic in self._topics.items():
            for args in topic.for_page():
                yield name, dict(args), partial(topic.answer, **args)

    def opening(self, room: int) -> bytes | None:
        """Return what the view asks as it opens, answered: `Opening` of wire.ts in JSON, and its buffers.

        None where nothing is asked. What does not fit into `room` bytes, or fails, is left to be asked: then
        the view says why.
        """
        told: list[str] = []
        data: list[bytes] = []
        for name, topic in self._topics.items():
            for args in topic.at_once():
                try:
                    meta, buffers = topic.answer(**args)
                    lengths = [len(part) for part in buffers]
                    one = {"topic": name, "args": dict(args), "meta": meta, "lengths": lengths}
                    line = json.dumps(one, separators=(",", ":"), allow_nan=False)
                except Exception:  # noqa: BLE001, S112 - it is asked again, and told in the view
                    continue
                if len(line) + sum(lengths) <= room:
                    room -= len(line) + sum(lengths)
                    told.append(line)
                    data.extend(buffers)
        if not told:
            return None
        head = f"[{','.join(told)}]".encode()
        return b"".join([len(head).to_bytes(4, "little"), head, *data])

    def close(self) -> None:
        """Stop what is being computed: nobody looks any more."""
        self._jobs.close()
