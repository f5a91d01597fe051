"""Roles: the tokens that a word of a claim stands for in every text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.tracing.recording.inputs import encode, text_tokenizer

if TYPE_CHECKING:
    from attnwidgets.tracing.recording.inputs import Sample

PREDEFINED = ("first", "last", "any")
"""Roles that need no definition: the first token, the last token, every token that is not special."""
_FORMS = (
    "a function of a token's text, a regular expression, or for every text a place (start, end) in "
    "characters, a list of places, a word of it, or None"
)
_SPAN = 2


class Roles:
    """Finds the tokens of roles.

    Args:
        definitions: The roles, by name.
        names: The roles that are needed.
        n_texts: Number of texts.

    Raises:
        ValueError: If a role is not defined, is given for another number of texts, or is not a regular
            expression.
        TypeError: If it is given in another form.
    """

    def __init__(self, definitions: Mapping[str, Any] | None, names: Sequence[str], n_texts: int) -> None:
        if definitions is not None and not isinstance(definitions, Mapping):
            raise TypeError(f"roles is a {type(definitions).__name__}; it is a dict of roles by name.")
        self._definitions = dict(definitions or {})
        for name in names:
            if name not in self._definitions and name not in PREDEFINED:
                choices = [*self._definitions, *PREDEFINED]
                raise ValueError(
                    f"role {name!r} is not explained: pass roles={{{name!r}: ...}}, {_FORMS}."
                    f"{suggest(name, choices)}"
                )
            role = self._definitions.get(name)
            if isinstance(role, str):
                try:
                    re.compile(role)
                except re.error as error:
                    raise ValueError(
                        f"role {name!r} is {role!r}, not a regular expression: {error}."
                    ) from error
            if name in self._definitions and not (callable(role) or isinstance(role, (str, re.Pattern))):
                if not isinstance(role, Sequence):
                    raise TypeError(f"role {name!r} is a {type(role).__name__}; it is {_FORMS}.")
                if len(role) != n_texts:
                    raise ValueError(
                        f"role {name!r} has {len(role)} entries, and the corpus has {n_texts} texts."
                    )

    def tokens(self, name: str, sample: Sample, text: int) -> tuple[int, ...]:
        """Return the tokens of a role in a text, in order; none if it is absent.

        Args:
            name: The role.
            sample: The text as the model reads it.
            text: Number of the text.
        """
        shown = sample.text
        if shown is None:
            return ()
        ordinary = [at for at, special in enumerate(shown.special) if not special]
        if name not in self._definitions:
            return {"first": (0,), "last": (len(shown.tokens) - 1,), "any": tuple(ordinary)}[name]
        role = self._definitions[name]
        if callable(role) and not isinstance(role, type):
            return tuple(at for at in ordinary if role(_spelled(sample, at)))
        if isinstance(role, (str, re.Pattern)):
            spans = [
                result.span(1 if result.re.groups else 0) for result in re.finditer(role, shown.texts[0])
            ]
        else:
            spans = _spans_of(role[text], shown.texts[0], name)
        return tuple(
            at
            for at in ordinary
            if any(shown.spans[at][0] < end and shown.spans[at][1] > start for start, end in spans)
        )


def sample_of(tokenizer: Any, text: str) -> Sample:
    """Return a text as tokens with their spans."""
    return encode(text_tokenizer(tokenizer), text)


def _spelled(sample: Sample, at: int) -> str:
    """Return the characters of a token, without white space around them."""
    if sample.text is None:  # never: a text was encoded
        return ""
    start, end = sample.text.spans[at]
    return sample.text.texts[0][start:end].strip()


def _spans_of(entry: Any, text: str, name: str) -> list[tuple[int, int]]:
    if entry is None:
        return []
    if isinstance(entry, str):
        start = text.find(entry)
        if start < 0 or not entry:
            raise ValueError(f"role {name!r} is {entry!r}, which is not in the text {text!r}.")
        return [(start, start + len(entry))]
    if not isinstance(entry, Sequence):
        raise TypeError(f"role {name!r} has an entry {entry!r}; entries are {_FORMS}.")
    if len(entry) == _SPAN and all(isinstance(number, int) for number in entry):
        start, end = int(entry[0]), int(entry[1])
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"role {name!r} is the place {(start, end)}, which is not in the {len(text)} characters of "
                f"the text {text!r}."
            )
        return [(start, end)]
    return [position for item in entry for position in _spans_of(item, text, name)]
