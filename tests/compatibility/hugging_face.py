"""Networks of transformers, which the tests of every commit run over."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from tests.compatibility.networks import BATCH, LENGTH, WORDS, Network, numbers, pixels, reals, tokens

__all__ = ["NETWORKS"]

WIDE: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
TEXT: dict[str, Any] = {"vocab_size": WORDS, "num_labels": 5}
SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
BOTH: dict[str, Any] = {
    **{"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "dropout": 0.1, "attention_dropout": 0.1},
}


def lively(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The network with weights of a size at which its outputs depend on its inputs: new ones hardly do."""

    @functools.wraps(build)
    def built() -> nn.Module:
        model = build()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1 and parameter.requires_grad:
                    parameter.normal_(0, parameter[0].numel() ** -0.5)
        return model

    return built


def padded() -> dict[str, Tensor]:
    """Words of which the second example has fewer."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, 4:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


def words() -> dict[str, Tensor]:
    """Words of a causal network."""
    return {"input_ids": tokens()}


def translation() -> dict[str, Tensor]:
    """Words for an encoder and for a decoder."""
    return {"input_ids": tokens(5), "decoder_input_ids": tokens()}


def images() -> dict[str, Tensor]:
    """Small images."""
    return {"pixel_values": pixels()}


def speech() -> dict[str, Tensor]:
    """A spectrogram and the words so far."""
    return {"input_features": reals(8, 20), "decoder_input_ids": tokens()}


def history() -> dict[str, Tensor]:
    """Ten steps and lags of a series, and four to come."""
    past = {"past_values": reals(13), "past_time_features": reals(13, 2), "past_observed_mask": torch.ones(BATCH, 13)}
    return past | {"future_values": reals(4), "future_time_features": reals(4, 2)}


def time_series() -> nn.Module:
    sizes = {**BOTH, "num_time_features": 2, "lags_sequence": [1, 2, 3], "context_length": 10, "prediction_length": 4}
    return hf.TimeSeriesTransformerForPrediction(hf.TimeSeriesTransformerConfig(**sizes))


def patches() -> nn.Module:
    sizes = {"d_model": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 32, "context_length": 16}
    rates = {"attention_dropout": 0.1, "ff_dropout": 0.1, "positional_dropout": 0.1, "head_dropout": 0.1}
    config = hf.PatchTSTConfig(num_input_channels=2, patch_length=4, patch_stride=4, prediction_length=4, **sizes, **rates)
    return hf.PatchTSTForPrediction(config)


def perceiver() -> nn.Module:
    sizes = {"num_latents": 6, "d_latents": 16, "d_model": 8, "num_blocks": 1, "num_self_attends_per_block": 2}
    heads = {"num_self_attention_heads": 4, "num_cross_attention_heads": 4}
    return hf.PerceiverForSequenceClassification(
        hf.PerceiverConfig(**TEXT, **sizes, **heads, max_position_embeddings=LENGTH)
    )


def segformer() -> nn.Module:
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2], "num_encoder_blocks": 2}
    rest = {"sr_ratios": [2, 1], "strides": [4, 2], "patch_sizes": [7, 3], "mlp_ratios": [2, 2], "decoder_hidden_size": 8}
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "drop_path_rate": 0.0, "num_labels": 5}
    return hf.SegformerForSemanticSegmentation(hf.SegformerConfig(**sizes, **rest, **rates))


def pvt() -> nn.Module:
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2], "num_encoder_blocks": 2}
    rest = {"sr_ratios": [2, 1], "strides": [4, 2], "patch_sizes": [7, 3], "mlp_ratios": [2, 2], "image_size": 32}
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "num_labels": 5}
    return hf.PvtV2ForImageClassification(hf.PvtV2Config(**sizes, **rest, **rates))


def swin() -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4}
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "drop_path_rate": 0.0, "num_labels": 5}
    return hf.SwinForImageClassification(hf.SwinConfig(**sizes, **rates))


def focalnet() -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "focal_levels": [2, 2]}
    rest = {"hidden_sizes": [8, 16], "focal_windows": [3, 3], "num_labels": 5}
    return hf.FocalNetForImageClassification(
        hf.FocalNetConfig(**sizes, **rest, hidden_dropout_prob=0.1, drop_path_rate=0.0)
    )


def funnel() -> nn.Module:
    sizes = {"block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 16, "n_head": 4, "d_head": 4, "d_inner": 32}
    return hf.FunnelForSequenceClassification(hf.FunnelConfig(**TEXT, **sizes))


def deberta() -> nn.Module:
    positions = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 8}
    return hf.DebertaV2ForSequenceClassification(hf.DebertaV2Config(**TEXT, **WIDE, **positions))


def wav2vec2() -> nn.Module:
    convolutions = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    rest = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8, "num_labels": 5}
    off = {"mask_time_prob": 0.0, "layerdrop": 0.0}
    return hf.Wav2Vec2ForSequenceClassification(hf.Wav2Vec2Config(vocab_size=WORDS, **WIDE, **convolutions, **rest, **off))


def _text(name: str, model: str, config: str, **options: Any) -> Network:
    def build() -> nn.Module:
        made: nn.Module = getattr(hf, model)(getattr(hf, config)(**TEXT, **options))
        return made

    return Network(name, "transformers", lively(build), padded)


def _causal(name: str, model: str, config: str, **options: Any) -> Network:
    def build() -> nn.Module:
        made: nn.Module = getattr(hf, model)(getattr(hf, config)(vocab_size=WORDS, **options))
        return made

    return Network(name, "transformers", lively(build), words, causal="input_ids")


def _seq2seq(name: str, model: str, config: str, **options: Any) -> Network:
    def build() -> nn.Module:
        made: nn.Module = getattr(hf, model)(getattr(hf, config)(vocab_size=WORDS, **SPECIAL, **options))
        return made

    return Network(name, "transformers", lively(build), translation, causal="decoder_input_ids")


T5 = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}
XLNET = {"d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 32}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 32}
VIT = {"image_size": 32, "patch_size": 8, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "num_labels": 5}
WHISPER = {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16, **BOTH}
OPT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 32, "word_embed_proj_dim": 16}


def vit() -> nn.Module:
    return hf.ViTForImageClassification(hf.ViTConfig(**WIDE, **VIT))


def whisper() -> nn.Module:
    return hf.WhisperForConditionalGeneration(hf.WhisperConfig(vocab_size=WORDS, **WHISPER, **SPECIAL))


NETWORKS = (
    _causal("GPT-2", "GPT2LMHeadModel", "GPT2Config", n_embd=16, n_layer=2, n_head=4),
    _causal("Llama", "LlamaForCausalLM", "LlamaConfig", attention_dropout=0.1, **WIDE),
    _causal("OPT", "OPTForCausalLM", "OPTConfig", attention_dropout=0.1, **OPT),
    _seq2seq("T5", "T5ForConditionalGeneration", "T5Config", **T5),
    _seq2seq("BART", "BartForConditionalGeneration", "BartConfig", **BOTH),
    Network("Whisper", "transformers", lively(whisper), speech, causal="decoder_input_ids"),
    _text("BERT", "BertForSequenceClassification", "BertConfig", **WIDE),
    _text("DistilBERT", "DistilBertForSequenceClassification", "DistilBertConfig", **DISTILBERT),
    _text("ALBERT", "AlbertForSequenceClassification", "AlbertConfig", embedding_size=8, hidden_dropout_prob=0.1,
          attention_probs_dropout_prob=0.1, **WIDE),
    Network("DeBERTa-v2", "transformers", lively(deberta), padded),
    Network("Funnel", "transformers", lively(funnel), padded),
    _text("XLNet", "XLNetForSequenceClassification", "XLNetConfig", **XLNET),
    Network("Perceiver", "transformers", lively(perceiver), lambda: {"inputs": tokens()}),
    Network("ViT", "transformers", lively(vit), images),
    Network("Swin", "transformers", lively(swin), images),
    Network("Segformer", "transformers", lively(segformer), images, log_likelihood=numbers),
    Network("FocalNet", "transformers", lively(focalnet), images),
    Network("PVTv2", "transformers", lively(pvt), images),
    Network("Wav2Vec2", "transformers", lively(wav2vec2), lambda: {"input_values": reals(200)}),
    Network(
        "TimeSeriesTransformer", "transformers", lively(time_series), history, lambda out: out.params[1], numbers
    ),
    Network(
        "PatchTST", "transformers", lively(patches), lambda: {"past_values": reals(16, 2)},
        lambda out: out.prediction_outputs, numbers,
    ),
)
