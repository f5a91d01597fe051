"""The grammar of claims: their parser, which marks the first wrong word, and their text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

from attnwidgets._errors import suggest
from attnwidgets.statistics.statistic import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from attnwidgets.circuits.claims.report import ClaimReport

Predicate = Literal["is", "attends", "looks", "moves"]
Control = Literal["same layer", "random", "shuffled"]
CONTROLS: tuple[Control, ...] = get_args(Control)
_VERBS = {"is": "is", "attends": "attends from", "looks": "looks where", "moves": "moves"}
_WRITER = re.compile(r"(?:[Hh]ead (?P<layer>\d+)\.(?P<head>\d+)|(?:MLP|mlp) (?P<mlp>\d+))")
_FORMS = (
    '"head 4.3 is previous token", "head 4.3 attends from pronoun to antecedent", '
    '"head 4.3 looks where head 2.1 wrote", "head 4.3 moves subject to last", and after each "more than '
    'same layer"'
)


class ClaimError(ValueError):
    """A sentence that is not a claim; the message points at the word where it goes wrong."""


@dataclass(frozen=True)
class Claim:
    """A sentence about a head that can be checked; see `aw.circuits.claim`.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        predicate: "is", "attends", "looks" or "moves".
        statistic: Name of the statistic, of "is".
        source: Role that attends, or whose difference is moved.
        target: Role that is attended to, or to which something is moved.
        control: The control that the sentence names, or None.
        writer: The head or MLP that wrote, of "looks": "head 2.1", "MLP 0".
    """

    layer: int
    head: int
    predicate: Predicate
    statistic: str = ""
    source: str = ""
    target: str = ""
    control: Control | None = None
    writer: str = ""

    def __str__(self) -> str:
        subject = f"{self.source} to {self.target}"
        if self.predicate == "is":
            subject = self.statistic.replace("_", " ")
        elif self.predicate == "looks":
            subject = f"{self.writer} wrote"
        than = f" more than {self.control}" if self.control else ""
        return f"{self.name} {_VERBS[self.predicate]} {subject}{than}"

    @property
    def name(self) -> str:
        """The head, in words: "head 4.3"."""
        return f"head {self.layer}.{self.head}"

    @property
    def causal(self) -> bool:
        """Whether the claim is about the head's effect (by patching), not about its attention."""
        return self.predicate == "moves"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles it names."""
        return tuple(filter(None, (self.source, self.target)))

    def check(
        self,
        model: Any,
        tokenizer: Any,
        corpus: Iterable[Any],
        *,
        roles: Mapping[str, Any] | None = None,
        control: Control | None = None,
        margin: float = 0.1,
        level: float = 0.95,
        resamples: int = 10_000,
        seed: int = 0,
    ) -> ClaimReport:
        """Check the claim on texts; see `aw.circuits.check_claims`.

        Args:
            model: A model.
            tokenizer: Its tokenizer.
            corpus: Texts; for "moves" pairs of texts.
            roles: Definitions of the roles of the sentence.
            control: The heads or tokens that the head is compared with.
            margin: By how much it must exceed its controls.
            level: Confidence of the intervals.
            resamples: Number of bootstrap samples.
            seed: Seed of the bootstrap and of the random heads.
        """
        from attnwidgets.circuits.claims.checking import check_claims

        return check_claims(
            model, tokenizer, [self], corpus, roles=roles, control=control, margin=margin, level=level,
            resamples=resamples, seed=seed,
        )  # fmt: skip


def claim(sentence: str) -> Claim:
    """Return a sentence about a head as something that can be checked.

        head L.H is <statistic>
        head L.H attends from <role> to <role>
        head L.H looks where head L.H wrote (or: MLP L wrote)
        head L.H moves <role> to <role>

    and after each, if wanted, "more than same layer", "more than random" or "more than shuffled". Statistics
    are those of `aw.statistics.statistics()`, with spaces or underscores. Roles are any words, which
    `.check(roles=...)` defines; "first", "last" and "any" are defined already. "attends" is an observation;
    "looks" is computed within the head: the output of the other head is removed from its keys; "moves" is
    causal: the head's output is patched.

    Args:
        sentence: The sentence.

    Returns:
        Claim: `.check(model, tokenizer, corpus, roles=...)` checks it.

    Raises:
        ClaimError: If it has another form; the message points at the word.
        TypeError: If it is not a string.

    Source: this package; paired bootstrap as in Efron and Tibshirani 1993, chapter 16.

    Example:
        >>> claim = aw.circuits.claim("head 0.0 is previous token")
        >>> report = claim.check(*aw.zoo.induction(letters="abcdefgh", length=16), ["fadeb", "hagcb"] * 3)
        >>> report.verdict
        'holds'
    """
    if not isinstance(sentence, str):
        raise TypeError(f"claim takes a sentence, not {type(sentence).__name__}: {_FORMS}.")
    return _Reader(sentence).claim()


class _Reader:
    """Reads a sentence word by word."""

    def __init__(self, sentence: str) -> None:
        self._sentence = re.sub(r"\s", " ", sentence)
        ends = self._sentence.rstrip().removesuffix(".")
        self._words = [(result[0], result.start()) for result in re.finditer(r"\S+", ends)]
        self._at = 0

    def claim(self) -> Claim:
        """Return the sentence as a claim."""
        self._take("head", "Head")
        word = self._word()
        number = re.fullmatch(r"(\d+)\.(\d+)", word)
        if number is None:
            self._fail('expected a layer and a head, such as "4.3"')
        self._at += 1
        layer, head = int(number[1]), int(number[2])
        verb = self._word()
        if verb not in _VERBS:
            self._fail('expected "is", "attends from", "looks where" or "moves".' + suggest(verb, _VERBS))
        self._at += 1
        if verb == "is":
            return Claim(layer, head, "is", statistic=self._statistic(), control=self._control())
        if verb == "looks":
            self._take("where")
            writer = self._writer(layer)
            self._take("wrote")
            return Claim(layer, head, "looks", control=self._control(), writer=writer)
        if verb == "attends":
            self._take("from")
        source = self._until(("to",), "a role")
        self._take("to")
        target = self._until(("more", "to"), "a role")
        predicate: Predicate = "attends" if verb == "attends" else "moves"
        return Claim(layer, head, predicate, "", source, target, self._control())

    def _statistic(self) -> str:
        start = self._at
        name = self._until(("more",), "a statistic").replace(" ", "_").replace("-", "_").casefold()
        names = [item for item, described in statistics().items() if described.measure is not None]
        names = ["induction", *names]
        if name not in names:
            self._at = start
            self._fail(f"unknown statistic; the statistics are {', '.join(names)}.{suggest(name, names)}")
        return name

    def _writer(self, layer: int) -> str:
        """Return a head or an MLP below a layer."""
        start = self._at
        name = self._until(("wrote", "more"), "a head or an MLP")
        writer = _WRITER.fullmatch(name)
        if writer is None or int(writer["layer"] or writer["mlp"]) >= layer:
            self._at = start
            self._fail(f'expected a head or an MLP of a layer before {layer}, such as "head 0.1" or "MLP 0"')
        if writer["mlp"]:
            return f"MLP {int(writer['mlp'])}"
        return f"head {int(writer['layer'])}.{int(writer['head'])}"

    def _control(self) -> Control | None:
        if self._at == len(self._words):
            return None
        if self._word() != "more":
            self._fail('expected "more than", or the end')
        self._take("more")
        self._take("than")
        start = self._at
        name = self._until((), "a control")
        result: Control | None = next((control for control in CONTROLS if name == control), None)
        if result is None:
            self._at = start
            choices = ", ".join(f'"{control}"' for control in CONTROLS)
            self._fail(f"expected {choices}.{suggest(name, CONTROLS)}")
        return result

    def _word(self) -> str:
        return self._words[self._at][0] if self._at < len(self._words) else ""

    def _take(self, word: str, *alike: str) -> None:
        if self._word() not in (word, *alike):
            self._fail(f'expected "{word}"')
        self._at += 1

    def _until(self, ends: Sequence[str], expected: str) -> str:
        """Return the words up to a word of `ends`, or to the end."""
        start = self._at
        while self._at < len(self._words) and self._word() not in ends:
            self._at += 1
        if self._at == start:
            self._fail(f"expected {expected}")
        return " ".join(word for word, _ in self._words[start : self._at])

    def _fail(self, message: str) -> NoReturn:
        column = self._words[self._at][1] if self._at < len(self._words) else len(self._sentence.rstrip()) + 1
        ending = "" if message.endswith((".", "?")) else "."
        raise ClaimError(
            f"this is not a claim:\n{self._sentence}\n{' ' * column}^ {message}{ending}\nClaims are {_FORMS}."
        )
