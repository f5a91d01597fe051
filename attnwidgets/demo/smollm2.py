"""SmolLM2 from the GGUF file in its package: a Llama, and the tokenizer that its metadata describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

_JOINED = 8  # rows of a matrix that are read as one


def smollm2(folder: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Read SmolLM2 from its GGUF file: dequantised weights, and the tokenizer that its metadata describes."""
    import gguf
    import numpy as np
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    class Reader(gguf.GGUFReader):
        """Reads arrays by a plain loop, and without a view of the memory map for each of 150,000 elements."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

        def _get_field_parts(
            self, orig_offs: int, raw_type: int
        ) -> tuple[int, list[Any], list[int], list[Any]]:
            kind = gguf.GGUFValueType
            if raw_type != kind.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            head = [self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)]
            of, count, end = kind(int(head[0][0])), int(head[1][0]), orig_offs + 12
            elements: list[Any] = []
            if of == kind.STRING:
                data = self.data.data
                for _ in range(count):
                    start = end + 8
                    end = start + int.from_bytes(data[end:start], "little")
                    elements.append(data[start:end])
            else:
                values = self._get(end, self.gguf_scalar_to_np[of], count)
                elements, end = list(values[:, None]), end + values.nbytes
            places = list(range(len(head), len(head) + count))
            return end - orig_offs, [*head, *elements], places, [kind.ARRAY, of]

    reader = Reader(next(folder.glob("*.gguf")))

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
    # Without random weights: all are read from the file below.
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
        # gguf reads sixteen rows at a time: those of a small model are too short for numpy.
        data = tensor.data.reshape(len(tensor.data) // _JOINED, -1)
        values = gguf.quants.dequantize(data, tensor.tensor_type).reshape(tensor.shape[::-1].tolist())
        if parts[0] == "blk":
            if parts[2] in ("attn_q", "attn_k"):
                values = _unpair(values, heads if parts[2] == "attn_q" else shared)
            key = f"model.layers.{parts[1]}.{names[parts[2]]}.weight"
        else:
            key = f"{names[parts[0]]}.weight"
        # Those in the file cannot be written to.
        state[key] = torch.from_numpy(np.require(values, "float32", "W"))
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    # The rotary frequencies are a buffer that is in no file.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.generation_config = GenerationConfig(
        bos_token_id=ids["bos"], eos_token_id=ids["eos"], pad_token_id=ids["padding"]
    )
    return model, _byte_level_tokenizer(entry)


def _unpair(weights: Any, heads: int) -> Any:
    """Return query or key rows with each head in two halves, as in transformers; GGUF interleaves them."""
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
