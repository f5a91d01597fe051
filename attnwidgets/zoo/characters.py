"""A tokenizer of the characters of running text, in which spaces count."""

from __future__ import annotations

from attnwidgets._errors import quoted
from attnwidgets.zoo.tokenizers import StrictTokenizer
from attnwidgets.zoo.truth import START

END, PAD = "</s>", "<pad>"


class CharacterTokenizer(StrictTokenizer):
    """A tokenizer of characters; it refuses those that its model does not know, by name."""

    def require(self, text: str) -> None:
        """Raise a ValueError if a text holds another character, or too many."""
        vocabulary = self.get_vocab()
        bare = text
        for special in self.all_special_tokens:
            bare = bare.replace(special, "")
        normalizer = self.backend_tokenizer.normalizer
        simple = normalizer.normalize_str(bare) if normalizer is not None else bare
        if unknown := next((character for character in simple if character not in vocabulary), None):
            alphabet = "".join(
                sorted(
                    set(vocabulary) - set(self.all_special_tokens),
                    key=vocabulary.__getitem__,
                )
            )
            raise ValueError(
                f"text {quoted(text)} holds {unknown!r}: this model knows the characters {alphabet!r} only."
            )
        most = self.model_max_length - self.num_special_tokens_to_add()
        if len(simple) > most:
            raise ValueError(f"text has {len(simple)} characters; this model reads at most {most}.")


def character_tokenizer(
    alphabet: str, length: int, *, lower: bool = False, ends: bool = False
) -> CharacterTokenizer:
    """Return a tokenizer of characters; character i of `alphabet` has id i, special tokens the last ids.

    Args:
        alphabet: The characters.
        length: The most characters of a text.
        lower: Read capitals as small letters, letters with accents without them, and typographic quotation
        marks
            and dashes as those of a typewriter.
        ends: Texts end with `</s>` (as an encoder-decoder's do) and are padded with `<pad>`, instead of
            beginning with `<s>`.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {character: number for number, character in enumerate(alphabet)}
    for special in (START, END, PAD) if ends else (START,):
        vocabulary[special] = len(vocabulary)
    backend = Tokenizer(models.WordLevel(vocabulary))
    if lower:
        simpler = {"[‘’]": "'", "[“”]": '"', "[–—]": "-", "…": "...", "\r\n?": "\n", "\t": " "}
        steps = [normalizers.Replace(Regex(written), read) for written, read in simpler.items()]
        backend.normalizer = normalizers.Sequence(
            [*steps, normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
        )
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    added = END if ends else START
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {END}" if ends else f"{START} $A", special_tokens=[(added, vocabulary[added])]
    )
    backend.decoder = decoders.Fuse()
    return CharacterTokenizer(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        bos_token=START,
        pad_token=PAD if ends else START,
        model_max_length=length + 1,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **({"eos_token": END} if ends else {}),
    )
