"""Tiny models of transformers, and data for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedModel,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

import contextual_dropout as cd

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
Examples = list[dict[str, Tensor]]


def bert_config(**options: Any) -> BertConfig:
    return BertConfig(**({"vocab_size": 50, "num_labels": 3, "max_position_embeddings": 16} | SIZES | options))


def texts(count: int = 24, length: int = 7) -> Examples:
    """Two lengths of sequences with labels."""
    ids, labels = torch.randint(1, 50, (count, length)), torch.randint(3, (count,))
    mask = torch.ones_like(ids)
    mask[::2, length - 2 :] = 0
    parts = zip(ids, mask, labels, strict=True)
    return [{"input_ids": row, "attention_mask": part, "labels": label} for row, part, label in parts]


def images(count: int = 24) -> Examples:
    parts = zip(torch.randn(count, 3, 8, 8), torch.randint(3, (count,)), strict=True)
    return [{"pixel_values": image, "labels": label} for image, label in parts]


def converted(model: PreTrainedModel, examples: Examples, **options: Any) -> Any:
    """With sites whose keep probabilities depend on the input from the start."""
    inputs = {name: value.unsqueeze(0) for name, value in examples[0].items() if name != "labels"}
    settings = {"initialisation": "he", "temperature": 0.3} | options
    return cd.contextualize(model.eval(), example=inputs, **settings)


def bert(**options: Any) -> tuple[Any, Examples]:
    torch.manual_seed(0)
    examples = texts()
    return converted(BertForSequenceClassification(bert_config()), examples, **options), examples


def vit(**options: Any) -> tuple[Any, Examples]:
    torch.manual_seed(0)
    examples, rates = images(), {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    config = ViTConfig(image_size=8, patch_size=4, num_labels=3, **rates, **SIZES)
    return converted(ViTForImageClassification(config), examples, **options), examples


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    quiet = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 1}
    usual = {"per_device_train_batch_size": 4, "logging_steps": 1, "save_strategy": "no", "learning_rate": 1e-2}
    return TrainingArguments(str(folder), **(quiet | usual | options))


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}
