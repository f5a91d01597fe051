"""Drawn scenes with a question: four shapes in nine cells, of which one answers. Their processor, too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.zoo.tokenizers import StrictTokenizer

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Box = tuple[int, int, int, int]

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 220),
    "yellow": (230, 210, 40),
    "purple": (150, 60, 180),
    "orange": (240, 140, 30),
}
SHAPES = ("circle", "square", "triangle", "cross")
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "center", "right")
SIDE, CELL = 3, 8  # cells of a side; pixels of a cell, which is a patch of the model
START, END, PAD, IMAGE = "<s>", "</s>", "<pad>", "<image>"
WORDS = (
    *(PAD, START, END, IMAGE),
    *("what", "color", "is", "the", "at", "?", "."),
    *(*SHAPES, *COLOURS, *ROWS, *COLUMNS),
)
QUESTION, ANSWER = 6, 8  # tokens of each


@dataclass(frozen=True, repr=False)
class Scene:
    """A picture of four coloured shapes, a question about one of them, and where its answer is drawn.

    Attributes:
        shapes: The cell, 0 to 8 row by row, and the colour of every shape.
        subject: The shape that the question is about.
    """

    shapes: Mapping[str, tuple[int, str]]
    subject: str

    @property
    def image(self) -> NDArray[np.uint8]:
        """The picture [24, 24, 3] on white, 0 to 255."""
        image = np.full((SIDE * CELL, SIDE * CELL, 3), 255, np.uint8)
        for shape, (cell, colour) in self.shapes.items():
            top, left, bottom, right = box_of(cell)
            image[top:bottom, left:right][_outline(shape)] = COLOURS[colour]
        return image

    @property
    def question(self) -> str:
        """The question, such as "what color is the circle ?"."""
        return f"what color is the {self.subject} ?"

    @property
    def answer(self) -> str:
        """The answer, such as "the circle is red at top left ."."""
        cell, colour = self.shapes[self.subject]
        return f"the {self.subject} is {colour} at {ROWS[cell // SIDE]} {COLUMNS[cell % SIDE]} ."

    @property
    def text(self) -> str:
        """The question after the picture's token, as the processor reads it."""
        return f"{IMAGE} {self.question}"

    @property
    def evidence(self) -> Box:
        """The cell that colour, row and column rest on, in pixels: (top, left, bottom, right)."""
        return box_of(self.shapes[self.subject][0])

    def __repr__(self) -> str:
        return f"<Scene: {self.question} {self.answer}>"


def box_of(cell: int) -> Box:
    """Return the box of a cell in pixels: (top, left, bottom, right)."""
    top, left = cell // SIDE * CELL, cell % SIDE * CELL
    return top, left, top + CELL, left + CELL


@cache
def _outline(shape: str) -> NDArray[np.bool_]:
    """Return the pixels of a cell that a shape fills; shapes of similar size, so that size tells nothing."""
    down, across = np.mgrid[:CELL, :CELL] - (CELL - 1) / 2
    far = np.maximum(abs(across), abs(down))
    drawn = {
        "circle": across**2 + down**2 <= 7,  # noqa: PLR2004
        "square": far >= 2.5,  # noqa: PLR2004
        "triangle": across <= down - 1,
        "cross": abs(abs(across) - abs(down)) < 1,
    }[shape]
    return np.asarray(drawn & (far <= 3))  # noqa: PLR2004


def drawn(rng: random.Random, number: int = len(SHAPES)) -> Scene:
    """Return a scene of `number` different shapes in different cells and colours, and asks for one of them.

    Args:
        rng: Chooses.
        number: Shapes in the picture, 1 to 4.
    """
    cells, colours = rng.sample(range(SIDE * SIDE), number), rng.sample(list(COLOURS), number)
    shapes = rng.sample(SHAPES, number)
    return Scene(dict(zip(shapes, zip(cells, colours, strict=True), strict=True)), rng.choice(shapes))


class WordTokenizer(StrictTokenizer):
    """A tokenizer of whole words; it refuses those that its model does not know, by name."""

    def require(self, text: str) -> None:
        """Raise a ValueError if a text holds another word."""
        vocabulary = self.get_vocab()
        bare = text
        for special in self.all_special_tokens:
            bare = bare.replace(special, " ")
        split = self.backend_tokenizer.pre_tokenizer.pre_tokenize_str(bare)
        if unknown := next((word for word, _ in split if word not in vocabulary), None):
            words = sorted(set(vocabulary) - set(self.all_special_tokens), key=vocabulary.__getitem__)
            raise ValueError(f"text holds {unknown!r}; the words of this model are {' '.join(words)}.")


def scene_processor() -> Any:
    """Return the LLaVA processor of scenes: a patch for each cell, and a tokenizer of `WORDS`."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import LlavaProcessor

    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, WORDS.index(START))]
    )
    tokenizer = WordTokenizer(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        bos_token=START,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens={"image_token": IMAGE},
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
    size = {"height": SIDE * CELL, "width": SIDE * CELL}
    half = [0.5] * 3
    # The one that needs Pillow alone; both return the same for a picture of this size.
    kind = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    reader = kind(size=size, crop_size=size, image_mean=half, image_std=half)
    return LlavaProcessor(
        reader,
        tokenizer,
        patch_size=CELL,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
