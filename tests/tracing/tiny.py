"""Tiny random models and tokenizers built in code."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
VOCAB = 120


def _config(name: str, **options: Any) -> Any:
    return getattr(hf, f"{name}Config")(**options)


def _plain(name: str, head: str, **options: Any) -> Any:
    return getattr(hf, name + head)(_config(name, vocab_size=VOCAB, **{**SMALL, **options}))


GQA = {"num_key_value_heads": 2, "head_dim": 8}


def _seq2seq_options() -> dict[str, Any]:
    sides = ("encoder", "decoder")
    return {
        **{f"{side}_layers": 2 for side in sides},
        **{f"{side}_attention_heads": 4 for side in sides},
        **{f"{side}_ffn_dim": 37 for side in sides},
        "vocab_size": VOCAB,
        "d_model": 32,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _wav2vec2() -> Any:
    return hf.Wav2Vec2Model(
        hf.Wav2Vec2Config(
            **SMALL, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2, num_feat_extract_layers=2,
        )
    )  # fmt: skip


def _whisper() -> Any:
    options = _seq2seq_options() | {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 30}
    return hf.WhisperForConditionalGeneration(hf.WhisperConfig(**options))


def _gemma(name: str, **options: Any) -> Any:
    return _plain(name, "ForCausalLM", **GQA, sliding_window=4, query_pre_attn_scalar=8, **options)


TEXT = {
    "BERT": lambda: _plain("Bert", "ForMaskedLM"),
    "RoBERTa": lambda: _plain("Roberta", "ForMaskedLM", pad_token_id=1),
    "DistilBERT": lambda: hf.DistilBertForMaskedLM(
        hf.DistilBertConfig(vocab_size=VOCAB, dim=32, n_layers=2, n_heads=4, hidden_dim=37)
    ),
    "ELECTRA": lambda: _plain("Electra", "Model", embedding_size=16),
    "ALBERT": lambda: _plain("Albert", "ForMaskedLM", embedding_size=16, num_hidden_layers=3),
    "ModernBERT": lambda: _plain(
        "ModernBert",
        "ForMaskedLM",
        local_attention=4,
        num_hidden_layers=4,
        pad_token_id=0,
        cls_token_id=1,
        sep_token_id=2,
    ),
    "GPT-2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    ),
    "GPT-NeoX": lambda: _plain("GPTNeoX", "ForCausalLM"),
    "OPT": lambda: hf.OPTForCausalLM(
        hf.OPTConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            ffn_dim=37,
            num_attention_heads=4,
            word_embed_proj_dim=32,
        )
    ),
    "Llama": lambda: _plain("Llama", "ForCausalLM", **GQA),
    "Qwen3": lambda: _plain("Qwen3", "ForCausalLM", **GQA),
    "Gemma 2": lambda: _gemma("Gemma2"),
    "Gemma 3": lambda: hf.Gemma3ForCausalLM(
        hf.Gemma3TextConfig(vocab_size=VOCAB, **SMALL, **GQA, sliding_window=4, query_pre_attn_scalar=8)
    ),
}
SEQ2SEQ = {
    "T5": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
    ),
    "Marian": lambda: hf.MarianMTModel(hf.MarianConfig(**_seq2seq_options())),
}
IMAGE = {
    "ViT": lambda: hf.ViTForImageClassification(
        hf.ViTConfig(**SMALL, image_size=24, patch_size=8, num_labels=3)
    ),
    "DINOv2 with registers": lambda: hf.Dinov2WithRegistersModel(
        hf.Dinov2WithRegistersConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=28,
            patch_size=7,
            num_register_tokens=3,
        )
    ),
}
OUTSIDE = {
    "DeBERTa": lambda: _plain(
        "DebertaV2", "ForMaskedLM", relative_attention=True, pos_att_type=["p2c", "c2p"]
    ),
    "MPNet": lambda: _plain("MPNet", "ForMaskedLM"),
    "GPT-Neo": lambda: hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global"], 2]],
            max_position_embeddings=64,
        )
    ),
    "BLOOM": lambda: hf.BloomForCausalLM(
        hf.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4)
    ),
    "Falcon": lambda: hf.FalconForCausalLM(
        hf.FalconConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    ),
    "XLNet": lambda: hf.XLNetLMHeadModel(
        hf.XLNetConfig(vocab_size=VOCAB, d_model=32, n_layer=2, n_head=4, d_inner=37)
    ),
}


class _Added(torch.nn.Module):
    """Adds zero: a sum is no longer recognised as weights."""

    def forward(self, weights: torch.Tensor) -> torch.Tensor:
        return weights + 0


def _unfollowed() -> Any:
    model = OUTSIDE["GPT-Neo"]()
    for block in model.transformer.h:
        block.attn.attention.attn_dropout = _Added()
    return model


UNFOLLOWED = {"GPT-Neo with sums": _unfollowed}


def build(make: Any, *, implementation: str | None = None) -> Any:
    """Return a tiny model, the same every time, in evaluation mode."""
    torch.manual_seed(0)
    model = make().eval()
    if implementation is not None:
        model.set_attn_implementation(implementation)
    return model


def wav2vec2() -> Any:
    return build(_wav2vec2)


def whisper() -> Any:
    return build(_whisper)


def clip() -> Any:
    small = SMALL | {"projection_dim": 16}
    config = hf.CLIPConfig(
        text_config=small
        | {"vocab_size": VOCAB, "max_position_embeddings": 20, "bos_token_id": 1, "eos_token_id": 2},
        vision_config=small | {"image_size": 24, "patch_size": 8},
        projection_dim=16,
    )
    return build(lambda: hf.CLIPModel(config))


WORDPIECE = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "un",
    "##believ",
    "##able",
    "cat",
    "sat",
    ".",
    "!",
    ",",
    "a",
    "b",
    "c",
    "new",
    "york",
    "我",
    "爱",
    "北",
    "京",
    "##s",
    "'",
    "don",
    "t",
]


def wordpiece() -> Any:
    """Return a BERT-like tokenizer: "unbelievable" is un ##believ ##able."""
    vocabulary = {token: i for i, token in enumerate(WORDPIECE)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    names = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
    return hf.PreTrainedTokenizerFast(tokenizer_object=backend, **{f"{k}_token": v for k, v in names.items()})


def byte_level(merges: tuple[str, ...] = ("Ġ t", "h e", "Ġt he", "c a", "ca t")) -> Any:
    """Return a GPT-2-like tokenizer that knows bytes and a few merges; it has no padding token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [tuple(m.split(" ")) for m in merges]
    tokens = ["<|end|>", *alphabet, *("".join(pair) for pair in pairs)]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|end|>", eos_token="<|end|>", unk_token="<|end|>"
    )


def metaspace() -> Any:
    """Return a SentencePiece-like tokenizer with byte fallback."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{i:02X}>" for i in range(256)),
        "▁the",
        "▁ca",
        "t",
        "▁",
        "s",
        "h",
        "▁un",
        "believ",
    ]
    pieces = [(token, -float(i % 7) - 1) for i, token in enumerate(tokens)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
