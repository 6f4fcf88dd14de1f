"""Causal networks, small and random, with the ways to run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import contextual_dropout as cd

VOCABULARY = 29
#: Token 0 is padding in all of them, 1 begins decoding.
SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, **SPECIAL))


def llama() -> nn.Module:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    heads = {"num_key_value_heads": 2, "attention_dropout": 0.2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes, **heads, **SPECIAL))


def t5() -> nn.Module:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    config = T5Config(vocab_size=VOCABULARY, **sizes, **SPECIAL, decoder_start_token_id=1)
    return T5ForConditionalGeneration(config)


def bart() -> nn.Module:
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "attention_dropout": 0.2}
    config = BartConfig(vocab_size=VOCABULARY, **sizes, **heads, **SPECIAL, decoder_start_token_id=1)
    return BartForConditionalGeneration(config)


class Masked(nn.Module):
    """A language model of ``nn.TransformerEncoder`` with the mask of the textbook."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2, batch_first=True)
        self.embed, self.dropout = nn.Embedding(VOCABULARY, 16), nn.Dropout(0.1)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        out: Tensor = self.head(self.encoder(self.dropout(self.embed(ids)), mask=mask))
        return out


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "bart": bart,
    "encoder": Masked,
}


def inputs(name: str, tokens: Tensor) -> dict[str, Tensor]:
    """The keywords with which a network reads a text of its own (B, T)."""
    if name in ("t5", "bart"):
        return {"input_ids": torch.arange(3, 9).expand(len(tokens), 6), "decoder_input_ids": tokens}
    return {"ids": tokens} if name == "encoder" else {"input_ids": tokens}


def logits(model: nn.Module, name: str, tokens: Tensor) -> Tensor:
    out = model(**inputs(name, tokens))
    return out if isinstance(out, Tensor) else out.logits


def text(samples: int = 2, length: int = 8) -> Tensor:
    return torch.randint(3, VOCABULARY, (samples, length))


def move_encoders(model: nn.Module) -> None:
    """Let the rates depend on what the sites read, by far."""
    for site in cd.sites(model).values():
        nn.init.normal_(site.encoder.expand_weight)


def converted(name: str, **options: Any) -> nn.Module:
    """A causal network with sites whose encoders are away from zero."""
    torch.manual_seed(0)
    model = NETWORKS[name]().eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data *= 3 if name in ("t5", "encoder") else 10  # new networks look everywhere alike
    example = {"example": inputs(name, text())} if name == "encoder" else {}
    cd.contextualize(model, **(example | {"temperature": 1.0} | options))
    with torch.no_grad():
        logits(model, name, text())  # tells sites their features
    move_encoders(model)
    return model
