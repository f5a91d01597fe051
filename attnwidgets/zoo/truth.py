"""The circuit of a compiled model: `model.truth` in `aw.zoo`, also after a model was saved and loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

START = "<s>"

COMPILED = (
    *("induction", "histogram", "additive", "negation", "two_hop", "dyck"),
    *("last_marked", "decayed_counts"),
)
"""The compiled models, each a function of `aw.zoo`."""


class Ablation(NamedTuple):
    """The effect of setting a head's output to zero.

    Attributes:
        says: The effect, in words.
        changes: Whether anything changes; False: all logits stay as they are, to the last bit.
        probability: Probability of the right answer afterwards; None where it depends on the text.
    """

    says: str
    changes: bool = True
    probability: float | None = None


NOTHING = Ablation("no change, exactly 0", changes=False)


def all_equal(classes: int) -> Ablation:
    """Return the ablation after which all classes, or tokens, are equally likely."""
    return Ablation(f"every answer has probability 1/{classes}", probability=1 / classes)


class Expected(NamedTuple):
    """The right answer at a token, and its evidence.

    Attributes:
        answer: The right answer; None without one (no evidence, or a tie).
        evidence: The role of each token that decides the answer, by the token's number (0 is `<s>`).
    """

    answer: str | None
    evidence: Mapping[int, str]


class Mixing(NamedTuple):
    """How a model without attention mixes the tokens of a text, in closed form; `<s>` is token 0.

    The mixer's output at token i is sum_j F_ij, where F_ij is the vector that token j contributes with the
    norms and gates fixed. alpha weighs position j *inside* the mixer, after a short convolution has mixed
    several tokens there: F and alpha may therefore name different tokens.

    Attributes:
        alpha: The weights inside the mixer, signed in general; rows do not sum to 1 [head, row, column].
        shares: |F_ij| / sum_j |F_ij|: 0 to 1, rows sum to 1; zero where nothing is contributed [row,
            column].
    """

    alpha: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Truth:
    """The documented circuit of a model: its heads, the evidence in a text, and the effects of ablations.

    A plain object: `copy.deepcopy(model)` and `model.to(...)` keep it. Files of a model do not hold it.

    Attributes:
        name: Name of the model in `aw.zoo`.
        does: The function that the model computes, in a sentence.
        letters: Its alphabet.
        length: The most letters of a text.
        heads: The role of every head, by (layer, head); the heads of a recurrence are those of its mixer.
        ablations: The effects of setting a head's output to zero, by (layer, head).
        weights: The contribution of every letter to the score, where letters have weights.
        at: The token whose output is the answer unless another is named: 0 is `<s>`, -1 the last.
        rule: Takes the letters of a text and the number of a token; returns the `Expected` answer there.
        mixer: Takes the letters of a text; returns its `Mixing`. None of models that attend.
    """

    name: str
    does: str
    letters: str
    length: int
    heads: Mapping[tuple[int, int], str]
    ablations: Mapping[tuple[int, int], Ablation]
    rule: Callable[[str, int], Expected] = field(compare=False)
    weights: Mapping[str, float] = field(default_factory=dict)
    at: int = -1
    mixer: Callable[[str], Mixing] | None = field(default=None, compare=False)

    def evidence(self, text: str | Sequence[str], at: int | None = None) -> dict[int, str]:
        """Return the tokens that decide a prediction, and why: {5: "the letter that was read", ...}.

        Args:
            text: A text, or its tokens with or without `<s>`.
            at: Number of the token whose output is explained; by default that of the attribute `at`.

        Returns:
            Why, by the number of the token; `<s>` is token 0. Empty without an answer.

        Raises:
            ValueError: If the text holds other letters, is too long, or has no token `at`.
        """
        return dict(self._expected(text, at).evidence)

    def answer(self, text: str | Sequence[str], at: int | None = None) -> str | None:
        """Return the right answer: the next letter, or the name of the class; None where there is none.

        Args:
            text: A text, or its tokens with or without `<s>`.
            at: Number of the token whose output is explained; by default that of the attribute `at`.

        Raises:
            ValueError: If the text holds other letters, is too long, or has no token `at`.
        """
        return self._expected(text, at).answer

    def mixing(self, text: str | Sequence[str]) -> Mixing:
        """Return how the tokens of a text are mixed, of a model that does so without attention.

        Args:
            text: A text, or its tokens with or without `<s>`.

        Raises:
            ValueError: If the model mixes tokens by attention (`aw.attention` shows it), or the text holds
                other letters or is too long.

        Example:
            >>> model, _ = aw.zoo.last_marked()
            >>> mixing = model.truth.mixing("cf#bd#a")
            >>> mixing.alpha[0, -1].argmax(), mixing.shares[-1].argmax()
            (6, 5)
        """
        if self.mixer is None:
            raise ValueError(
                f"{self.name} mixes tokens by attention, which aw.attention(trace) returns; mixing() is for "
                "models without it, such as aw.zoo.last_marked()."
            )
        return self.mixer(self._letters_of(text))

    def _expected(self, text: str | Sequence[str], at: int | None) -> Expected:
        letters = self._letters_of(text)
        position = self.at if at is None else at
        position += (len(letters) + 1) * (position < 0)
        if not 0 <= position <= len(letters):
            raise ValueError(f"at must be a token of the text, 0 to {len(letters)}, not {at}.")
        return self.rule(letters, position)

    def _letters_of(self, text: Any) -> str:
        tokens = list(text.replace(START, "")) if isinstance(text, str) else list(text)
        letters = [token for token in tokens if token != START and not str(token).isspace()]
        if unknown := next((letter for letter in letters if letter not in list(self.letters)), None):
            raise ValueError(f"text holds {unknown!r}; the letters are {quoted(self.letters)}.")
        if len(letters) > self.length:
            raise ValueError(f"text has {len(letters)} letters; the model reads at most {self.length}.")
        return "".join(letters)

    def __repr__(self) -> str:
        lines = [f"{self.name}: {self.does}"]
        for head, role in self.heads.items():
            ablation = self.ablations.get(head)
            lines.append(
                f"  head {head[0]}.{head[1]}: {role}" + (f"; without it: {ablation.says}" if ablation else "")
            )
        return "\n".join(lines)


def truth_of(model: Any) -> Truth:
    """Return the `Truth` of a model of `aw.zoo`: `model.truth`, or that of the model its files describe.

    Files of a model hold its weights and its configuration. The truth is rebuilt from the arguments of the
    compiled model, which the configuration stores; changes to the weights since then are not detected.

    Args:
        model: A model of `aw.zoo`, or a model that was loaded from its files.

    Raises:
        ValueError: If it is neither.

    Example:
        >>> aw.zoo.truth_of(aw.zoo.induction()[0]).heads[0, 0]
        'previous token'
    """
    from attnwidgets import zoo

    if (attached := getattr(model, "truth", None)) is not None:
        truth: Truth = attached
        return truth
    made_of = getattr(getattr(model, "config", None), "zoo", None)
    if not isinstance(made_of, dict) or made_of.get("name") not in COMPILED:
        raise ValueError(
            f"model has no known truth: this {type(model).__name__} has no .truth, and is not of aw.zoo."
        )
    settings = {name: value for name, value in made_of.items() if name != "name"}
    try:
        rebuilt: Truth = getattr(zoo, made_of["name"])(**settings)[0].truth
    except TypeError as error:
        raise ValueError(f"model.config.zoo is not what aw.zoo wrote: {error}") from error
    return rebuilt
