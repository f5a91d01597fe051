"""ClaimReport: claims about heads, their verdicts and controls, and the texts that speak against them."""

from __future__ import annotations

import base64
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from attnwidgets._errors import quoted, require_choice, suggest
from attnwidgets.circuits.claims.verdicts import Verdict
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, read_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.figure import Figure
    from typing_extensions import Self

    from attnwidgets._tables import Columns

_WORST = 3  # texts that are printed
_THAN = {
    "same layer": "the other heads of its layer",
    "random": "random heads",
    "shuffled": "other tokens drawn by chance",
}
_OF_A_HEAD = re.compile(r"head \d+\.\d+ ")


class ClaimText(NamedTuple):
    """A text that a claim was checked on.

    Attributes:
        number: Its number in the corpus.
        text: The text; of a pair the clean text.
        corrupt: The other text of a pair, or "".
        value: The head's value.
        control: Mean value of the control's heads.
        source: Tokens of the claim's first role.
        target: Tokens of its second role.
        answers: Of a pair, the answers that it was given with, the clean text's first; () if the model's
            predictions were used.
    """

    number: int
    text: str
    corrupt: str
    value: float
    control: float
    source: tuple[int, ...]
    target: tuple[int, ...]
    answers: tuple[Any, ...] = ()


class ClaimResult(NamedTuple):
    """A claim, its numbers, and the verdict.

    Attributes:
        claim: The sentence.
        causal: Whether it is about the head's effect, by patching; otherwise it is an observation.
        unit: The measured quantity, in words.
        verdict: "holds", "fails" or "undecided", among all claims of the report.
        control: The control that the head was compared with.
        mean: Mean of the head's value over texts.
        interval: Its bootstrap interval.
        difference: Mean over texts of the head's value less its control's.
        difference_interval: Its bootstrap interval, of this claim alone.
        p_holds: One-sided p value against being at or below the margin, of this claim alone.
        p_fails: One-sided p value against being at or above it.
        heads: By control, (layer, head, mean over texts) of every other head.
        baselines: The same of the head at other tokens, by name; NaN where there are none.
        texts: The texts it was checked on.
        given: Number of texts in the corpus.
        left_out: Why texts were left out, and how many.
        needed: The smallest number of texts with which any of the report's claims can hold or fail.
    """

    claim: str
    causal: bool
    unit: str
    verdict: Verdict
    control: str
    mean: float
    interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]
    p_holds: float
    p_fails: float
    heads: Mapping[str, tuple[tuple[int, int, float], ...]]
    baselines: Mapping[str, float]
    texts: tuple[ClaimText, ...]
    given: int
    left_out: tuple[tuple[str, int], ...]
    needed: int = 0

    @property
    def head(self) -> tuple[int, int]:
        """The layer and the head that it is about."""
        layer, head = self.claim.split()[1].split(".")
        return int(layer), int(head)

    def worst(self, k: int = 5) -> list[ClaimText]:
        """Return the texts that speak most against the claim: the least beyond the control first.

        Args:
            k: Largest number of texts.
        """
        return sorted(self.texts, key=lambda text: text.value - text.control)[:k]

    def below(self, margin: float) -> int:
        """Return in how many texts the head exceeds its control by less than a margin."""
        return sum(text.value - text.control < margin for text in self.texts)


class ClaimReport(Explanation):
    """Claims about heads with their verdicts, in the order in which they were passed.

    Iterating gives a `ClaimResult` for each; `report["head 4.3 is ..."]` is the result of a sentence.

    Args:
        results: Results of the claims.
        margin: By how much heads must exceed their controls.
        level: Confidence of intervals.
        model: The model that they were checked with, so that views can open a text; not saved.
        tokenizer: Its tokenizer; not saved.
        **common: See `Explanation`.

    Raises:
        ValueError: If results are empty.
    """

    kind = "ClaimReport"
    viewed_by = "circuits.claim_view:ClaimView"
    results: tuple[ClaimResult, ...]
    margin: float
    level: float
    model: Any
    tokenizer: Any

    def __init__(
        self,
        results: Sequence[ClaimResult],
        *,
        margin: float,
        level: float,
        model: Any = None,
        tokenizer: Any = None,
        method: str = "circuits.check_claims",
        unit: str = "text",
        **common: Any,
    ) -> None:
        if not results:
            raise ValueError("results is empty.")
        self._set_common(method=method, unit=unit, **({"dtype": "float64"} | common))
        self._set(results=tuple(results), margin=float(margin), level=float(level))
        self._set(model=model, tokenizer=tokenizer)

    def __iter__(self) -> Iterator[ClaimResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, sentence: str) -> ClaimResult:
        """Return the result of a claim, by its sentence.

        Raises:
            KeyError: If there is none.
        """
        outcome = {result.claim: result for result in self.results}
        if sentence not in outcome:
            raise KeyError(
                f"unknown claim {sentence!r}; the claims are {list(outcome)}.{suggest(sentence, outcome)}"
            )
        return outcome[sentence]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim.

        Raises:
            ValueError: If there are several claims.
        """
        if len(self) > 1:
            raise ValueError("there are several claims: [result.verdict for result in report].")
        return self.results[0].verdict

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("claim", "text")."""
        return ("claim", "text")

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of claims and of texts of the corpus."""
        return (len(self), self.results[0].given)

    @property
    def values(self) -> Array:
        """The heads' values in every text [claim, text]; NaN where a text was left out."""
        values = np.full(self.shape, np.nan)
        for row, result in enumerate(self.results):
            for text in result.texts:
                values[row, text.number] = text.value
        return read_only(values)

    @property
    def title(self) -> str:
        """The claim and its verdict, or how many claims hold."""
        if len(self) == 1:
            return f"{self.results[0].claim}: {self.results[0].verdict}"
        holding = sum(result.verdict == "holds" for result in self.results)
        return f"{holding} of {len(self)} claims hold"

    def __str__(self) -> str:
        lines = [line for result in self.results for line in self._lines(result)]
        if len(self) > 1:
            lines.append(f"Verdicts are Holm's for {len(self)} claims; intervals are of each claim alone.")
        return "\n".join(lines)

    def describe(self) -> str:
        """Return the verdicts with their limits and controls, and the texts against them."""
        return str(self)

    def _lines(self, result: ClaimResult) -> list[str]:
        """Return a claim's verdict with its limits, its controls, and the texts against it."""
        count = len(result.texts)
        lines = [
            f"{result.claim}: {result.verdict}",
            (
                f"  {result.unit} {result.mean:.2f} {spoken(result.interval)}; "
                f"{result.difference:+.2f} {spoken(result.difference_interval)} beyond "
                f"{_THAN[result.control]}, margin {self.margin:g}; "
                f"{'causal' if result.causal else 'observed'}, {self.level:.0%} over texts"
            ),
        ]
        compared = [f"{name} {value:.2f}" for name, value in result.baselines.items() if not np.isnan(value)]
        best = max(
            (head for heads in result.heads.values() for head in heads), key=lambda h: h[2], default=None
        )
        if best is not None:
            compared.insert(0, f"head {best[0]}.{best[1]} {best[2]:.2f}")
        lines += [f"  highest control, and other tokens: {', '.join(compared)}"] if compared else []
        out = "".join(f", {number} left out ({why})" for why, number in result.left_out)
        few = "" if count >= result.needed else f"; too few for a verdict, which needs {result.needed}"
        lines.append(
            f"  {count} of {result.given} texts{out}; below the margin in {result.below(self.margin)}{few}"
        )
        lines += [f"    {text.value:.2f}  {quoted(text.text)}" for text in result.worst(_WORST)]
        return lines

    def _columns(self) -> Iterator[Columns]:
        """Yield claim, verdict, text, its strings, the head's value, and its control's."""
        rows = [(result, text) for result in self.results for text in result.texts]
        yield {
            "claim": [result.claim for result, _ in rows],
            "verdict": [result.verdict for result, _ in rows],
            "number": [text.number for _, text in rows],
            "text": [text.text for _, text in rows],
            "corrupt": [text.corrupt for _, text in rows],
            "value": np.array([text.value for _, text in rows]),
            "control": np.array([text.control for _, text in rows]),
        }

    def figure(self, *, title: str | None = None) -> Figure:
        """Return a matplotlib figure: every head's mean with its interval, next to its controls.

        Args:
            title: Heading; by default the claim and its verdict.
        """
        from attnwidgets.circuits.pictures import claims_figure

        return claims_figure(self, title=title)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": str(self)} | self._attempt("picture", self._png)

    def _png(self) -> dict[str, Any]:
        from attnwidgets.figures.maps import small_png

        return {"image/png": base64.b64encode(small_png(self.figure())).decode("ascii")}

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays."""
        results = [result._asdict() | {"texts": [list(text) for text in result.texts]} for result in self]
        for described in results:
            described["heads"] = {
                name: [list(h) for h in heads] for name, heads in described["heads"].items()
            }
            described["baselines"] = {
                name: None if np.isnan(value) else value for name, value in described["baselines"].items()
            }
            for name in ("difference", "interval", "difference_interval"):
                described[name] = _finite(described[name])
            described["texts"] = [[_finite(part) for part in text] for text in described["texts"]]
        return self._describe_common() | {"results": results, "margin": self.margin, "level": self.level}, {
            "values": self.values
        }

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the report that `to_description` described."""
        results = [_restored(result) for result in described["results"]]
        # The texts hold the numbers; a damaged number of texts would make a table of any size.
        shape = arrays["values"].shape
        for result in results:
            if shape != (len(results), result.given) or any(
                t.number not in range(result.given) for t in result.texts
            ):
                raise ValueError(
                    f"{result.claim!r:.60} has {result.given} texts, and values have shape {shape}"
                )
        facts = {"margin": described["margin"], "level": described["level"]}
        return cls(results, **facts, **restore_common(described))


def _finite(part: Any) -> Any:
    """Return numbers as JSON has them: None for NaN, and words for infinite numbers."""
    if isinstance(part, (tuple, list)):
        return [_finite(item) for item in part]
    if isinstance(part, float) and not np.isfinite(part):
        return None if np.isnan(part) else str(part)
    return part


def spoken(interval: tuple[float, float]) -> str:
    """Return an interval in brackets; it is infinite for a single text."""
    low, high = interval
    return f"[{low:.2f}, {high:.2f}]".replace("inf", "∞")


def _number(part: Any) -> float:
    return float("nan") if part is None else float(part)


def _restored(result: Mapping[str, Any]) -> ClaimResult:
    if not _OF_A_HEAD.match(result["claim"]):
        raise ValueError(f"{result['claim']!r:.60} is not a claim about a head")
    require_choice("verdict", result["verdict"], get_args(Verdict))
    require_choice("control", result["control"], tuple(_THAN))
    texts = tuple(
        ClaimText(
            int(number), str(text), str(corrupt), _number(value), _number(control), *map(tuple, of_tokens)
        )
        for number, text, corrupt, value, control, *of_tokens in result["texts"]
    )
    heads = {
        name: tuple((int(layer), int(head), float(mean)) for layer, head, mean in listed)
        for name, listed in result["heads"].items()
    }
    return ClaimResult(
        **{
            **result,
            "texts": texts,
            "heads": MappingProxyType(heads),
            "baselines": {name: _number(value) for name, value in result["baselines"].items()},
            "difference": _number(result["difference"]),
            "interval": tuple(_number(end) for end in result["interval"]),
            "difference_interval": tuple(_number(end) for end in result["difference_interval"]),
            "left_out": tuple((str(why), int(count)) for why, count in result["left_out"]),
        }
    )
