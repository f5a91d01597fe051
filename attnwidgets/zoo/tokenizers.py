"""A tokenizer of single letters that begins every text with `<s>`, and the base of those of the zoo."""

from __future__ import annotations

import unicodedata
from typing import Any

from transformers import PreTrainedTokenizerFast

from attnwidgets._errors import quoted

START = "<s>"
"""The token that every text begins with."""
MOST_LETTERS = 64
"""Letters an alphabet may have."""
MOST = 64
"""Letters a text may have."""


class StrictTokenizer(PreTrainedTokenizerFast):
    """A tokenizer that checks every text before it is encoded.

    Saved and loaded again, it is transformers' plain `PreTrainedTokenizerFast`.
    """

    def _encode_plus(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        for item in [text] if isinstance(text, str) else text:
            if isinstance(item, str):
                self.require(item)
        return super()._encode_plus(text, *args, **kwargs)

    def require(self, text: str) -> None:
        """Raise a ValueError if the model cannot read a text."""
        raise NotImplementedError


class LetterTokenizer(StrictTokenizer):
    """A tokenizer of letters; it refuses other letters and texts that are too long by name.

    White space between letters means nothing.
    """

    def require(self, text: str) -> None:
        """Raise a ValueError if a text holds another letter, or too many."""
        vocabulary = self.get_vocab()
        letters = [letter for letter in text.replace(START, "") if not letter.isspace()]
        if unknown := next((letter for letter in letters if letter not in vocabulary), None):
            alphabet = "".join(sorted(set(vocabulary) - {START}, key=vocabulary.__getitem__))
            raise ValueError(
                f"text {quoted(text)} holds {unknown!r}; the letters of this model are {quoted(alphabet)}."
            )
        if len(letters) > self.model_max_length - 1:
            raise ValueError(
                f"text has {len(letters)} letters; this model reads at most {self.model_max_length - 1} "
                "(its argument length)."
            )


def letter_tokenizer(letters: str, length: int) -> LetterTokenizer:
    """Return a tokenizer of single letters; letter i of `letters` has id i, and `<s>` the last id.

    Args:
        letters: The alphabet.
        length: The most letters of a text.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    start = len(letters)
    backend = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(letters)} | {START: start}))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    backend.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, start)]
    )
    backend.decoder = decoders.Fuse()
    return LetterTokenizer(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        bos_token=START,
        model_max_length=length + 1,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def require_alphabet(letters: str, least: int = 1) -> None:
    """Raise a ValueError if `letters` is not an alphabet: single visible characters, none of them twice.

    Args:
        letters: The alphabet.
        least: The fewest letters it may have.
    """
    if not isinstance(letters, str):
        raise TypeError(f"letters must be a string such as 'abcdefgh', not {type(letters).__name__}.")
    if not least <= len(letters) <= MOST_LETTERS:
        raise ValueError(f"letters must have {least} to {MOST_LETTERS} characters, not {len(letters)}.")
    for number, letter in enumerate(letters):
        # Marks join the character before them, separators are dropped, controls cannot be seen.
        if unicodedata.category(letter)[0] in "CMZ":
            raise ValueError(
                f"letters holds {letter!r} (character {number}), which is not a visible character of its own."
            )
        if letters.index(letter) < number:
            raise ValueError(f"letters holds {letter!r} twice.")
    if set(START) <= set(letters):
        raise ValueError(f"letters can spell {START!r}, the token that begins a text: leave one of them out.")


def require_length(length: int, name: str = "length") -> None:
    """Raise an error if `length`, the argument `name`, is not a whole number from 1 to `MOST`."""
    if isinstance(length, bool) or not isinstance(length, int):
        raise TypeError(f"{name} must be a whole number, not {length!r}.")
    if not 1 <= length <= MOST:
        raise ValueError(f"{name} must be 1 to {MOST}, not {length}.")
