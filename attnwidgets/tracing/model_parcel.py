"""A model and its tokenizer for the shards of long work: by name or as objects, identified by content."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._parcels import Here, parcel, stays
from attnwidgets.tracing.content import fingerprint_of, tokenizer_fingerprint
from attnwidgets.tracing.interventions import said_of
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.loading import load_model, load_named, load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from attnwidgets._parcels import Parcel

# By kind of object: its fingerprint, and its loader by name.
_KINDS = {"model": (fingerprint_of, load_model), "tokenizer": (tokenizer_fingerprint, load_tokenizer)}


@dataclass(frozen=True)
class Carried:
    """A model and its tokenizer, packed for shards."""

    model: Parcel | Here
    tokenizer: Parcel | Here

    def open(self) -> tuple[Any, Any]:
        """Return model and tokenizer, in any process."""
        return self.model.open(), self.tokenizer.open()


class Reader:
    """A model and its tokenizer in this process, loaded once where they are given by name.

    Args:
        model: A model, a hub id or a folder.
        tokenizer: A tokenizer, a hub id or a folder; None loads that saved with the model.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model_name = str(model) if isinstance(model, (str, Path)) else ""
        source = self._model_name if tokenizer is None else tokenizer
        self._tokenizer_name = str(source) if isinstance(source, (str, Path)) else ""
        self.model, self.tokenizer = load_named(model, tokenizer, needs_reader=True)

    @cached_property
    def fingerprints(self) -> tuple[str, str]:
        """Hashes of the content of both, as of the first access."""
        return fingerprint_of(self.model), tokenizer_fingerprint(self.tokenizer)

    @contextmanager
    def carried(self, jobs: int | Executor) -> Iterator[Carried]:
        """Lend both to shards: by name if they have one, else as objects.

        Raises:
            ValueError: If interventions are in force, which stay in this process.
        """
        changes = said_of(unwrap(self.model))
        if changes and jobs != 1:
            raise ValueError(
                f"model is changed ({'; '.join(changes)}), which workers do not see: use jobs=1."
            )
        if stays(jobs):
            yield Carried(Here(self.model), Here(self.tokenizer))
            return
        with (
            self._lent("model", self.model, self._model_name, jobs) as model,
            self._lent("tokenizer", self.tokenizer, self._tokenizer_name, jobs) as tokenizer,
        ):
            yield Carried(model, tokenizer)

    def _lent(
        self, kind: str, value: Any, name: str, jobs: int | Executor
    ) -> AbstractContextManager[Parcel | Here]:
        check, load = _KINDS[kind]
        return parcel(
            value,
            jobs,
            kind=kind,
            description=f"{kind} {name!r}" if name else f"{kind}, a {type(value).__name__},",
            check=check,
            make=partial(load, name) if name else None,
            fingerprint=dict(zip(_KINDS, self.fingerprints, strict=True))[kind],
        )
