"""Networks of transformers, which the tests of every commit run over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tests.compatibility.networks import BATCH, LENGTH, WORDS, Network, lively, numbers, pixels, reals, tokens

__all__ = ["NETWORKS"]

Options = dict[str, Any]
SIZES: Options = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
RATES: Options = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
LABELS: Options = {"num_labels": 5}
TEXT: Options = {"vocab_size": WORDS, **LABELS}
LANGUAGE: Options = {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TRANSLATION: Options = {**LANGUAGE, "decoder_start_token_id": 1}
BOTH: Options = {
    **{"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "dropout": 0.1, "attention_dropout": 0.1},
}
PYRAMID: Options = {
    **{"hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2], "num_encoder_blocks": 2},
    **{"sr_ratios": [2, 1], "strides": [4, 2], "patch_sizes": [7, 3], "mlp_ratios": [2, 2]},
}
POSITIONS: Options = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 8}
FUNNEL: Options = {
    "block_sizes": [1, 1],
    "num_decoder_layers": 1,
    "d_model": 16,
    "n_head": 4,
    "d_head": 4,
    "d_inner": 32,
}
PERCEIVER: Options = {
    **{"num_latents": 6, "d_latents": 16, "d_model": 8, "num_blocks": 1, "num_self_attends_per_block": 2},
    **{"num_self_attention_heads": 4, "num_cross_attention_heads": 4, "max_position_embeddings": LENGTH},
}
SWIN: Options = {"patch_size": 4, "embed_dim": 8, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4}
FOCAL: Options = {"patch_size": 4, "embed_dim": 8, "depths": [1, 1], "hidden_sizes": [8, 16]}
SOUND: Options = {
    **{"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2},
    **{"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8},
    **{"mask_time_prob": 0.0, "layerdrop": 0.0},
}
SERIES: Options = {"num_time_features": 2, "lags_sequence": [1, 2, 3], "context_length": 10, "prediction_length": 4}
PATCHES: Options = {
    **{"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4, "prediction_length": 4},
    **{"d_model": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 32},
    **{"attention_dropout": 0.1, "ff_dropout": 0.1, "positional_dropout": 0.1, "head_dropout": 0.1},
}


def padded(length: int) -> dict[str, Tensor]:
    """Words of which the second example has fewer."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[1, 4:] = 0
    return {"input_ids": tokens(length), "attention_mask": mask}


def words(length: int) -> dict[str, Tensor]:
    """Words of a causal network."""
    return {"input_ids": tokens(length)}


def sentences(length: int) -> dict[str, Tensor]:
    """Words for an encoder and for a decoder."""
    return {"input_ids": tokens(length - 2), "decoder_input_ids": tokens(length)}


def speech(length: int) -> dict[str, Tensor]:
    """A spectrogram and the words so far."""
    return {"input_features": reals(8, 20), "decoder_input_ids": tokens(length)}


def images(size: int) -> dict[str, Tensor]:
    """Small images."""
    return {"pixel_values": pixels(size)}


def history(steps: int) -> dict[str, Tensor]:
    """Ten steps and lags of a series, and some to come."""
    past = {"past_values": reals(13), "past_time_features": reals(13, 2), "past_observed_mask": torch.ones(BATCH, 13)}
    return past | {"future_values": reals(steps), "future_time_features": reals(steps, 2)}


def of(
    name: str, model: str, config: str, inputs: Callable[[int], dict[str, Tensor]], options: Options, **known: Any
) -> Network:
    """A network by the names of its classes; what else is known of it as in :class:`Network`."""

    def build() -> nn.Module:
        made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
        return made

    return Network(name, "transformers", lively(build), inputs, **known)


NETWORKS = (
    of(
        *("GPT-2", "GPT2LMHeadModel", "GPT2Config", words),
        {**LANGUAGE, "n_embd": 16, "n_layer": 2, "n_head": 4},
        causal="input_ids",
        other_size=9,
    ),
    of(
        *("Llama", "LlamaForCausalLM", "LlamaConfig", words),
        {**LANGUAGE, **SIZES, "attention_dropout": 0.1},
        causal="input_ids",
        other_size=9,
    ),
    of(
        *("OPT", "OPTForCausalLM", "OPTConfig", words),
        {**LANGUAGE, **SIZES, "ffn_dim": 32, "word_embed_proj_dim": 16, "attention_dropout": 0.1},
        causal="input_ids",
        other_size=9,
    ),
    of(
        *("T5", "T5ForConditionalGeneration", "T5Config", sentences),
        {**TRANSLATION, "d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4},
        causal="decoder_input_ids",
        other_size=9,
    ),
    of(
        *("BART", "BartForConditionalGeneration", "BartConfig", sentences),
        {**TRANSLATION, **BOTH},
        causal="decoder_input_ids",
        other_size=9,
    ),
    of(
        *("Whisper", "WhisperForConditionalGeneration", "WhisperConfig", speech),
        {**TRANSLATION, **BOTH, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16},
        causal="decoder_input_ids",
        other_size=9,
    ),
    of("BERT", "BertForSequenceClassification", "BertConfig", padded, {**TEXT, **SIZES}, other_size=9),
    of(
        *("DistilBERT", "DistilBertForSequenceClassification", "DistilBertConfig", padded),
        {**TEXT, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 32},
        other_size=9,
    ),
    of(
        *("ALBERT", "AlbertForSequenceClassification", "AlbertConfig", padded),
        {**TEXT, **SIZES, **RATES, "embedding_size": 8},
        other_size=9,
    ),
    of(
        *("DeBERTa-v2", "DebertaV2ForSequenceClassification", "DebertaV2Config", padded),
        {**TEXT, **SIZES, **POSITIONS},
        other_size=9,
    ),
    of(
        "Funnel",
        "FunnelForSequenceClassification",
        "FunnelConfig",
        padded,
        {**TEXT, **FUNNEL, "d_inner": 32},
        other_size=9,
    ),
    of(
        *("XLNet", "XLNetForSequenceClassification", "XLNetConfig", padded),
        {**TEXT, "d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 32},
        other_size=9,
    ),
    of(
        *(
            "Perceiver",
            "PerceiverForSequenceClassification",
            "PerceiverConfig",
            lambda length: {"inputs": tokens(length)},
        ),
        {**TEXT, **PERCEIVER},
        other_size=5,
    ),
    of(
        *("ViT", "ViTForImageClassification", "ViTConfig", images),
        {**LABELS, **SIZES, **RATES, "image_size": 32, "patch_size": 8},
        size=32,
    ),
    of(
        *("Swin", "SwinForImageClassification", "SwinConfig", images),
        {**LABELS, **SWIN, **RATES, "image_size": 32, "drop_path_rate": 0.0},
        size=32,
        other_size=48,
    ),
    of(
        *("Segformer", "SegformerForSemanticSegmentation", "SegformerConfig", images),
        {**LABELS, **PYRAMID, **RATES, "decoder_hidden_size": 8, "drop_path_rate": 0.0},
        size=32,
        other_size=48,
        log_likelihood=numbers,
    ),
    of(
        *("FocalNet", "FocalNetForImageClassification", "FocalNetConfig", images),
        {**LABELS, **FOCAL, "image_size": 32, "hidden_dropout_prob": 0.1, "drop_path_rate": 0.0},
        size=32,
        other_size=48,
    ),
    of(
        *("PVTv2", "PvtV2ForImageClassification", "PvtV2Config", images),
        {**LABELS, **PYRAMID, **RATES, "image_size": 32},
        size=32,
        other_size=48,
    ),
    of(
        *(
            "Wav2Vec2",
            "Wav2Vec2ForSequenceClassification",
            "Wav2Vec2Config",
            lambda length: {"input_values": reals(length)},
        ),
        {**TEXT, **SIZES, **SOUND},
        size=200,
        other_size=260,
    ),
    of(
        *("TimeSeriesTransformer", "TimeSeriesTransformerForPrediction", "TimeSeriesTransformerConfig", history),
        {**BOTH, **SERIES},
        size=4,
        output=lambda out: out.params[1],
        log_likelihood=numbers,
        causal="future_time_features",
    ),
    of(
        *("PatchTST", "PatchTSTForPrediction", "PatchTSTConfig", lambda n: {"past_values": reals(n, 2)}),
        PATCHES,
        size=16,
        output=lambda out: out.prediction_outputs,
        log_likelihood=numbers,
    ),
)
