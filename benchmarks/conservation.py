"""Test where relevance is conserved, by architecture: python benchmarks/conservation.py [--write].

The models are tiny and random, including biases and gains; `aw.check_conservation` omits the biases. --write
puts the table into docs/conservation.md.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers as hf
from pages import write_between

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = Path(__file__).parents[1] / "docs" / "conservation.md"
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"

VOCABULARY = 120
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TWO_SIDES = {
    **{f"{side}_layers": 3 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
    "d_model": 32,
    "decoder_start_token_id": 0,
}
GPT = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}

# Why architectures fail; written by hand, unlike the figures.
REASONS = {
    "XLNet": "its blocks read [token, batch, width], which are not recognised as hidden states",
}


def model(name: str, head: str = "ForCausalLM", **options: Any) -> Callable[[], Any]:
    """Return a function that builds a tiny model of a family."""

    def build() -> Any:
        config = getattr(hf, f"{name}Config")(**options)
        return getattr(hf, name + head)(config)

    return build


def plain(name: str, head: str = "ForCausalLM", **options: Any) -> Callable[[], Any]:
    """Return a function that builds a tiny model whose config takes the usual names."""
    return model(name, head, **{"vocab_size": VOCABULARY, **SMALL, **ENDS, **options})


def gemma(name: str, config: str, **options: Any) -> Callable[[], Any]:
    """Return a function that builds a tiny Gemma."""
    settings = {**SMALL, **GROUPED, **ENDS, "sliding_window": 4, "query_pre_attn_scalar": 8, **options}
    return lambda: getattr(hf, f"{name}ForCausalLM")(getattr(hf, config)(vocab_size=VOCABULARY, **settings))


ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "Llama": plain("Llama", **GROUPED),
    "Qwen2": plain("Qwen2", num_key_value_heads=2),
    "Qwen3": plain("Qwen3", **GROUPED),
    "Mistral": plain("Mistral", **GROUPED),
    "Gemma 2 (strong soft caps)": gemma(
        "Gemma2", "Gemma2Config", attn_logit_softcapping=1.0, final_logit_softcapping=1.0
    ),
    "Gemma 3": gemma("Gemma3", "Gemma3TextConfig"),
    "Phi": plain("Phi"),
    "Phi-3 (fused gate and up)": plain("Phi3", num_key_value_heads=2),
    "OLMo 2": plain("Olmo2", num_key_value_heads=2),
    "StableLM": plain("StableLm", num_key_value_heads=2),
    "StableLM (parallel blocks)": plain("StableLm", num_key_value_heads=2, use_parallel_residual=True),
    "Granite": plain("Granite", num_key_value_heads=2, residual_multiplier=0.3),
    "SmolLM3": plain("SmolLM3", num_key_value_heads=2),
    "Cohere": plain("Cohere", num_key_value_heads=2),
    "Nemotron (squared ReLU)": plain("Nemotron", **GROUPED),
    "GPT-NeoX": plain("GPTNeoX"),
    "GPT-2": model("GPT2", "LMHeadModel", vocab_size=VOCABULARY, **GPT),
    "OPT": model(
        "OPT", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, ffn_dim=64, num_attention_heads=4,
        word_embed_proj_dim=32, **ENDS,
    ),
    "BLOOM": model("Bloom", vocab_size=VOCABULARY, hidden_size=32, n_layer=3, n_head=4),
    "Falcon": model(
        "Falcon", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=4
    ),
    "GPT-J": model("GPTJ", vocab_size=VOCABULARY, rotary_dim=4, **GPT),
    "Mixtral (experts)": plain("Mixtral", num_key_value_heads=2, **EXPERTS),
    "Qwen3 MoE (experts)": plain(
        "Qwen3Moe", **GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    ),
    "DeepSeek-V3 (experts, latent attention)": plain(
        "DeepseekV3", n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2, q_lora_rank=8,
        kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8, moe_intermediate_size=16,
        first_k_dense_replace=1,
    ),
    "gpt-oss": plain("GptOss", **GROUPED, **EXPERTS),
    "BERT": plain("Bert", "ForMaskedLM"),
    "BERT (classifier)": plain("Bert", "ForSequenceClassification", num_labels=3),
    "RoBERTa": plain("Roberta", "ForMaskedLM"),
    "DistilBERT": model(
        "DistilBert", "ForMaskedLM", vocab_size=VOCABULARY, dim=32, n_layers=3, n_heads=4, hidden_dim=64
    ),
    "ALBERT (one shared block)": plain("Albert", "ForMaskedLM", embedding_size=16),
    "ModernBERT": plain("ModernBert", "ForMaskedLM", cls_token_id=1, sep_token_id=2, local_attention=4),
    "DeBERTa": plain("DebertaV2", "ForMaskedLM", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "XLNet": model(
        "XLNet", "LMHeadModel", vocab_size=VOCABULARY, d_model=32, n_layer=3, n_head=4, d_inner=64
    ),
    "ViT": model("ViT", "ForImageClassification", **SMALL, image_size=24, patch_size=8, num_labels=3),
    "DINOv2": model("Dinov2", "Model", **SMALL, image_size=28, patch_size=7),
    "SigLIP (vision)": model("SiglipVision", "Model", **SMALL, image_size=24, patch_size=8),
    "T5": model(
        "T5", "ForConditionalGeneration", vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=3,
        num_heads=4, decoder_start_token_id=0,
    ),
    "T5 1.1 (gated)": model(
        "T5", "ForConditionalGeneration", vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=3,
        num_heads=4, decoder_start_token_id=0, feed_forward_proj="gated-gelu",
    ),
    "BART": model("Bart", "ForConditionalGeneration", vocab_size=VOCABULARY, **TWO_SIDES, **ENDS),
    "Whisper": model(
        "Whisper", "ForConditionalGeneration", vocab_size=VOCABULARY, **TWO_SIDES, **ENDS, num_mel_bins=8,
        max_source_positions=20, max_target_positions=30,
    ),
    "wav2vec 2.0": model(
        "Wav2Vec2", "Model", **SMALL, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3),
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, num_feat_extract_layers=2,
    ),
    "Mamba": model("Mamba", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3),
    "Mamba 2": model(
        "Mamba2", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_heads=4, head_dim=16,
        n_groups=1, state_size=8,
    ),
    "RWKV": model("Rwkv", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3),
    "xLSTM": model(
        "xLSTM", vocab_size=VOCABULARY, hidden_size=32, embedding_dim=32, num_hidden_layers=3, num_heads=4
    ),
    "Qwen3-Next (gated delta rule, attention)": plain(
        "Qwen3Next", **GROUPED, layer_types=["linear_attention", "linear_attention", "full_attention"],
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16,
    ),
    "Falcon-H1 (Mamba 2 beside attention)": plain(
        "FalconH1", **GROUPED, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1,
        mamba_d_state=8,
    ),
    "RecurrentGemma (RG-LRU, attention)": plain(
        "RecurrentGemma", num_key_value_heads=1, lru_width=32, attention_window_size=8
    ),
}  # fmt: skip


def built(make: Callable[[], Any]) -> Any:
    """Return a tiny model, always the same, whose gains and biases are not trivial."""
    torch.manual_seed(0)
    network = make().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return network


def attnlrp(network: Any) -> str:
    """Return AttnLRP's sum at the first block, with biases, as a share of the target."""
    from attnwidgets.explanations.attribution.conservation import made_up

    trace = aw.trace(network, None, **made_up(network))
    main = trace.stacks[0]

    def target(outputs: Any) -> torch.Tensor:
        values = outputs.logits if "logits" in outputs else outputs.last_hidden_state
        row = values if values.dim() == 2 else values[:, -1]
        best: torch.Tensor = row[:, row.detach().abs().argmax()]
        return best

    sums = aw.lrp(trace, target, stack=main, at="block").provenance["conservation"]
    return f"{sums['sum'][0] / sums['target'][0]:.2f}"


def rows() -> Iterator[str]:
    """Yield a line of the table for each architecture."""
    for name, make in ARCHITECTURES.items():
        network = built(make)
        reason = REASONS.get(name, "")
        try:
            verdict = aw.check_conservation(network, again=True)
        except ValueError as error:
            yield f"| {name} | `{type(network).__name__}` | **no** | | | | {reason or error} |"
            continue
        count = sum(map(len, verdict.sums.values()))
        if verdict:
            share = attnlrp(network)
            yield f"| {name} | `{type(network).__name__}` | yes | {count} | {verdict.error:.0e} | {share} | |"
        else:
            off = f"{verdict.error:.1g}" if verdict.error == verdict.error else ""
            reason = reason or verdict.problem
            yield f"| {name} | `{type(network).__name__}` | **no** | {count} | {off} | | {reason} |"


def main() -> None:
    """Print the table, or write it into the page."""
    warnings.filterwarnings("ignore")
    hf.logging.set_verbosity_error()
    torch.set_num_threads(1)
    heads = "architecture", "class", "conserved", "places", "worst difference", "AttnLRP's sum", "why not"
    table = [f"| {' | '.join(heads)} |", "|---|---|---|---:|---:|---:|---|", *rows()]
    versions = f"attnwidgets {aw.__version__}, transformers {hf.__version__}, torch {torch.__version__}"
    text = "\n".join([versions + ".", "", *table])
    print(text)
    if "--write" in sys.argv:
        write_between(PAGE, BEGIN, END, text)


if __name__ == "__main__":
    main()
