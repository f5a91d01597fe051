"""Words of a vocabulary whose embeddings are near to those of a text's words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.text.given_texts import listed_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

_SHORTEST = 3  # letters of a word that is offered


@dataclass(frozen=True, repr=False)
class NearWords:
    """Takes the words of a text and an index; returns the nearest words to the word there, nearest first.

    Attributes:
        words: The words that are offered.
        count: How many are returned.
    """

    words: tuple[str, ...]
    count: int
    _numbers: dict[str, int] = field(repr=False)
    _units: Tensor = field(repr=False)

    def __call__(self, words: Sequence[str], index: int) -> list[str]:
        """Return the words that are nearest to word number `index`; none for a word that is not offered."""
        number = self._numbers.get(words[index].strip(".,:;!?").lower())
        if number is None:
            return []
        order = (self._units @ self._units[number]).argsort(descending=True, stable=True)
        return [self.words[near] for near in order[: self.count + 1].tolist() if near != number][: self.count]

    def __repr__(self) -> str:
        return f"<NearWords: the nearest {self.count} of {len(self.words):,} words>"


def near_words(
    model: Any, tokenizer: Any, count: int = 8, *, among: Iterable[str] | None = None
) -> NearWords:
    """Return a function that names the words nearest to a word of a text, by the cosine of embeddings.

    Words that embeddings bring together are used alike, and need not mean the same: *good* is near to *bad*.

    Args:
        model: A model.
        tokenizer: Its tokenizer.
        count: Number of words for each word, at least 1.
        among: The words to choose from; by default every word of at least three letters that is one token.
            Words of several tokens are left out, and no word is near to them.

    Returns:
        A function of the words of a text and an index, as `aw.evaluate.attack` and
        `aw.evaluate.minimal_edits` take it.

    Raises:
        ValueError: If count is below 1, or none of the words is one token.

    Example:
        >>> model = aw.demo_model("classifier")
        >>> near = aw.evaluate.near_words(*model, among=["bad", "great", "table", "wonderful"])
        >>> near(["a", "great", "film"], 1)
        ['wonderful', 'bad', 'table']
    """
    import torch

    from attnwidgets.tracing.anatomy.block_names import word_embeddings
    from attnwidgets.tracing.recording.borrow import unwrap

    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}.")
    offered = _vocabulary(tokenizer) if among is None else listed_texts(among, "among")
    offered = list(dict.fromkeys(word.lower() for word in offered))
    # Within a text, a word follows a space, which byte-level vocabularies hold.
    rows = tokenizer([f"a {word}" for word in offered], add_special_tokens=False)["input_ids"]
    start = len(tokenizer("a", add_special_tokens=False)["input_ids"])
    single = {word: row[-1] for word, row in zip(offered, rows, strict=True) if len(row) == start + 1}
    if not single:
        raise ValueError(f"among has no word that is one token of {type(tokenizer).__name__}.")
    table: Any = word_embeddings(unwrap(model))[0]
    with no_grad():
        vectors = table.weight[list(single.values())].float().cpu()
    units = torch.nn.functional.normalize(vectors, dim=-1)
    return NearWords(tuple(single), count, {word: number for number, word in enumerate(single)}, units)


def _vocabulary(tokenizer: Any) -> list[str]:
    """Return the words among the tokens: letters, perhaps with the mark of a space before them."""
    by_number = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    bare = (token.lstrip("Ġ▁") for token, _ in by_number)
    return [word for word in bare if word.isalpha() and len(word) >= _SHORTEST]
