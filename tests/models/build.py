"""A tiny random model of every model type of transformers' auto mappings."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers as hf
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

from tests.models.shrink import HEADS, WIDTH, configs_in, put, shrink
from tests.models.single_types import BY_HAND, SINGLE_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

_MILLION = 10**6
_MOST_WEIGHTS = 100 * _MILLION

# The heads, in the order in which the first that a type has is its primary one.
TASKS = {
    "seq2seq": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "speech": auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    "masked": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "image and text": auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    "causal": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "image classes": auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    "CTC": auto.MODEL_FOR_CTC_MAPPING_NAMES,
    "audio classes": auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    "classes": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "token classes": auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "answers": auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
    "base": auto.MODEL_MAPPING_NAMES,
}


class NotBuiltError(Exception):
    """A tiny model of this type cannot be made by shrinking its default config."""


@dataclass(frozen=True, order=True)
class Kind:
    """A model type with its primary head, and its inputs.

    Args:
        name: The model type.
        task: The head, a key of `TASKS`.
        picture: Whether a model of text and pictures reads a picture; otherwise it reads text alone.
    """

    name: str
    task: str
    picture: bool = False

    @property
    def label(self) -> str:
        """How the table names it."""
        return f"{self.name}, picture" if self.picture else self.name


def kinds() -> list[Kind]:
    """Return every model type; those that read text and pictures twice."""
    tasks: dict[str, str] = {}
    for task, names in TASKS.items():
        for name in names:
            tasks.setdefault(name, task)
    both = TASKS["image and text"]
    result = [Kind(name, task) for name, task in tasks.items()]
    return sorted(result + [Kind(name, "image and text", picture=True) for name in both])


def model_class(kind: Kind) -> Any:
    """Return the class of a type's head."""
    names = TASKS[kind.task][kind.name]
    try:
        head = next(getattr(hf, name) for name in ([names] if isinstance(names, str) else names))
        _ = head.config_class  # raises if the class needs a library that is missing
        return head  # noqa: TRY300 - the returned head is the tried head
    except (AttributeError, ImportError, RuntimeError) as error:
        raise NotBuiltError(" ".join(str(error).split())[:160]) from error


def build(kind: Kind) -> Any:
    """Return a tiny model in evaluation mode, the same every time, with random biases and gains.

    Raises:
        NotBuiltError: The default config cannot be shrunk; the message says why.
    """
    if kind.name in BY_HAND:
        return BY_HAND[kind.name].model()
    head = model_class(kind)
    faults: dict[str, None] = {}
    for config_class in dict.fromkeys(filter(None, (head.config_class, _config_class(kind.name)))):
        for adjust in (_same, _without_groups, _with_head_dim, _without_head_dim):
            try:
                config = _config(kind, config_class, adjust)
                with torch.device("meta"):
                    weights = sum(parameter.numel() for parameter in head(config).parameters())
                if weights > _MOST_WEIGHTS:
                    faults[f"{weights // _MILLION} million weights are left"] = None
                    continue
                torch.manual_seed(0)
                return _shaken(head(_config(kind, config_class, adjust)).eval())
            except Exception as error:  # noqa: BLE001 - whatever a config that does not fit raises
                faults[f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"] = None
    raise NotBuiltError(next(iter(faults)))


def _config_class(name: str) -> Any:
    return CONFIG_MAPPING[name] if name in CONFIG_MAPPING_NAMES else None


def _config(kind: Kind, config_class: Any, adjust: Callable[[Any], None]) -> Any:
    options, sizes = SINGLE_TYPES.get(kind.name, ({}, {}))
    config = shrink(config_class(**copy.deepcopy(options)))
    for part in configs_in(config):
        if "kv_lora_rank" in vars(part):
            put(part, "num_key_value_heads", HEADS)
        if getattr(part, "topk_method", None):
            put(part, "topk_method", "greedy")
        # Experts run at once only in single precision.
        part._experts_implementation_internal = "eager"
        for name, value in sizes.items():
            is_seen = isinstance(value, dict) and "Vision" in type(part).__name__
            if name in vars(part) and not is_seen:  # text alone has rotary embeddings in sections
                put(part, name, value)
        adjust(part)
    if (
        kind.task == "causal"
        and getattr(config, "is_decoder", None) is False
        and kind.name in TASKS["masked"]
    ):
        config.is_decoder = True
    return config


def _same(_: Any) -> None:
    pass


def _with_head_dim(config: Any) -> None:
    if vars(config).get("head_dim", 0) is None:
        put(config, "head_dim", WIDTH // HEADS)


def _without_groups(config: Any) -> None:
    for name in ("num_key_value_heads", "num_kv_heads", "n_kv_heads"):
        if type(vars(config).get(name)) is int:
            put(config, name, HEADS)


def _without_head_dim(config: Any) -> None:
    if "head_dim" in vars(config):
        put(config, "head_dim", None)


def _shaken(model: Any) -> Any:
    """Add noise to all parameters, so that no constant or zero hides a mistake."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point() or name.endswith(("A_log", "dt_bias", ".D")):
                continue
            parameter[~(parameter.abs() < 1e4)] = 0  # never initialised
            parameter.add_(
                torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=0.1
            )
    return model
