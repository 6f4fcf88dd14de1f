"""Attention dropout of Hugging Face models, which is applied as a function, as sites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    DPTConfig,
    DPTModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    GptOssConfig,
    GptOssModel,
    LlamaConfig,
    LlamaForSequenceClassification,
    PersimmonConfig,
    PersimmonModel,
    VideoMAEConfig,
    VideoMAEModel,
    ViTConfig,
    ViTForImageClassification,
    YolosConfig,
    YolosModel,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import contextual_dropout as cd
from contextual_dropout.conversion.hugging_face import IMPLEMENTATION, is_attention

#: Rates of 0 are part of these models.
pytestmark = pytest.mark.filterwarnings("ignore::contextual_dropout.ConversionWarning")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def tokens() -> dict[str, Tensor]:
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, 4:] = 0
    return {"input_ids": torch.randint(1, 50, (3, 7)), "attention_mask": mask}


def bert() -> tuple[nn.Module, dict[str, Tensor]]:
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.3}
    return BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=3, **rates, **SIZES)), tokens()


def vit() -> tuple[nn.Module, dict[str, Tensor]]:
    config = ViTConfig(image_size=8, patch_size=4, num_labels=3, attention_probs_dropout_prob=0.3, **SIZES)
    return ViTForImageClassification(config), {"pixel_values": torch.randn(3, 3, 8, 8)}


def distilbert() -> tuple[nn.Module, dict[str, Tensor]]:
    config = DistilBertConfig(
        vocab_size=50, dim=16, n_layers=2, n_heads=4, hidden_dim=32, dropout=0.0, seq_classif_dropout=0.0
    )
    return DistilBertForSequenceClassification(config), tokens()


def gpt2() -> tuple[nn.Module, dict[str, Tensor]]:
    config = GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=4, attn_pdrop=0.3, resid_pdrop=0.0, embd_pdrop=0.0, pad_token_id=0
    )
    return GPT2ForSequenceClassification(config), tokens()


def llama() -> tuple[nn.Module, dict[str, Tensor]]:
    """Fewer heads for keys than for queries."""
    config = LlamaConfig(vocab_size=50, num_key_value_heads=2, attention_dropout=0.3, pad_token_id=0, **SIZES)
    return LlamaForSequenceClassification(config), tokens()


def bart() -> tuple[nn.Module, dict[str, Tensor]]:
    """Three kinds of attention: in the encoder, in the decoder, and from this to that."""
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = BartConfig(vocab_size=50, num_labels=3, dropout=0.0, attention_dropout=0.3, **sizes, **heads)
    inputs = tokens()
    inputs["input_ids"][inputs["input_ids"] == config.eos_token_id] = 5
    inputs["input_ids"][:, 3] = config.eos_token_id  # it classifies by the last of these, and there must be one
    return BartForSequenceClassification(config), inputs


MODELS: list[Callable[[], tuple[nn.Module, dict[str, Tensor]]]] = [bert, vit, distilbert, gpt2, llama, bart]


@pytest.mark.parametrize("build", MODELS)
def test_attention_dropout_alone(build: Callable[[], tuple[Any, dict[str, Tensor]]]) -> None:
    torch.manual_seed(0)
    model, inputs = build()
    model.eval()
    before = model.config._attn_implementation
    with torch.no_grad():
        expected = model(**inputs).logits
    cd.contextualize(model, example=inputs)
    assert [site.features for site in cd.sites(model).values()] == [4] * sum(map(is_attention, model.modules()))
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-6, rtol=1e-5)
        result = cd.probe(model, **inputs)
        assert all(site.spread > 0 for site in result.sites.values())
        assert not torch.equal(*cd.predict(model, **inputs, samples=2).samples)
    step = cd.ELBO(model.train())(lambda: model(**inputs).logits.log_softmax(-1)[:, 0])
    step.loss.backward()
    for site in cd.sites(model).values():
        assert site.encoder.expand_bias.grad is not None
        assert site.encoder.expand_bias.grad.abs().max() > 0
    cd.strip(model.eval())
    assert model.config._attn_implementation == before
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, expected)


@pytest.mark.parametrize("build", MODELS)
def test_different_inputs_have_different_rates_at_every_site(
    build: Callable[[], tuple[nn.Module, dict[str, Tensor]]],
) -> None:
    torch.manual_seed(0)
    model, inputs = build()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data *= 10  # new networks look everywhere alike
    cd.contextualize(model.eval(), example=inputs, temperature=1.0, initialisation="he")
    keep = cd.keep_probabilities(model, **inputs)
    assert len(keep) >= 2
    for each in keep.values():
        assert min((each[i] - each[j]).abs().max() for i, j in ((0, 1), (0, 2), (1, 2))) > 1e-4


SMALL: dict[str, Any] = {"image_size": 8, "patch_size": 4, "attention_probs_dropout_prob": 0.3, **SIZES}


@pytest.mark.parametrize(
    "build",
    [
        lambda: YolosModel(YolosConfig(**{**SMALL, "image_size": [8, 8]}, num_detection_tokens=2)),
        lambda: VideoMAEModel(VideoMAEConfig(**SMALL, num_frames=2)),
        lambda: DPTModel(DPTConfig(**SMALL, is_hybrid=False)),
        lambda: PersimmonModel(PersimmonConfig(vocab_size=50, attention_dropout=0.3, **SIZES)),
    ],
)
def test_rates_have_many_names(build: Callable[[], nn.Module]) -> None:
    model = cd.contextualize(build())
    attention = [site for name, site in cd.sites(model).items() if name.endswith("contextual_dropout")]
    assert [round(1 - site.prior_keep_probability.item(), 3) for site in attention] == [0.3, 0.3]


@pytest.mark.parametrize("kind", ["entropy", "scores", "queries"])
def test_a_sink_is_no_key(kind: str) -> None:
    """These models softmax one score more than there are keys."""
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 4, "num_key_value_heads": 2}
    model = GptOssModel(GptOssConfig(vocab_size=50, attention_dropout=0.3, **SIZES, **experts))
    inputs = tokens()
    cd.contextualize(model.eval(), example=inputs, attention_context=kind)
    for keep in cd.keep_probabilities(model, **inputs).values():
        assert keep.shape == (3, 7, 4)


class RenamedAttention(nn.Module):
    """Of a model whose rate has a name of its own."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config, self.loss_of_weights = config, 0.3

    def forward(self, x: Tensor) -> Any:
        attend = ALL_ATTENTION_FUNCTIONS["eager"]
        return attend(self, x, x, x, None, dropout=self.loss_of_weights if self.training else 0.0)


def test_attention_of_an_unknown_rate_is_reported() -> None:
    model = nn.Sequential(nn.Dropout(0.2), RenamedAttention(BertConfig()))
    with pytest.warns(cd.ConversionWarning, match="the name of its drop rate is unknown"):
        cd.contextualize(model)
    assert list(cd.sites(model)) == ["0"]
    again = nn.Sequential(RenamedAttention(BertConfig()))
    assert len(cd.sites(cd.contextualize(again, p=0.2))) == 1


@pytest.mark.parametrize("kind", ["entropy", "scores", "queries"])
def test_padding_of_a_shorter_text_changes_nothing(kind: str) -> None:
    torch.manual_seed(0)
    model, _ = bert()
    for name, parameter in model.named_parameters():
        if "query.weight" in name or "key.weight" in name:
            parameter.data *= 50  # new BERTs look everywhere alike
    ids = torch.randint(1, 50, (2, 5))
    cd.contextualize(
        model.eval(), example={"input_ids": ids}, attention_context=kind, temperature=1.0, initialisation="he"
    )
    padded = torch.cat([ids, torch.randint(1, 50, (2, 3))], 1)
    mask = torch.tensor([[1] * 5 + [0] * 3] * 2)
    with torch.no_grad():
        short = model(input_ids=ids).logits
        long = model(input_ids=padded, attention_mask=mask).logits
    torch.testing.assert_close(long, short)
    keep = next(iter(cd.keep_probabilities(model, input_ids=ids).values()))
    assert (keep[0] - keep[1]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["entropy", "scores", "queries"])
def test_padding_of_the_encoder_is_none_of_the_decoder(kind: str) -> None:
    """A decoder as long as the padded text: all of its queries count, in cross-attention too."""
    torch.manual_seed(0)
    model, inputs = bart()
    for name, parameter in model.named_parameters():
        if "q_proj.weight" in name or "k_proj.weight" in name:
            parameter.data *= 50
    cd.contextualize(model.eval(), example=inputs, attention_context=kind, temperature=1.0, initialisation="he")
    ids = inputs["input_ids"]
    mask = torch.tensor([[1] * 4 + [0] * 3] * 3)
    with torch.no_grad():
        short = model.model(input_ids=ids[:, :4], decoder_input_ids=ids).last_hidden_state
        long = model.model(input_ids=ids, attention_mask=mask, decoder_input_ids=ids).last_hidden_state
    torch.testing.assert_close(long, short)


def test_the_layer_that_only_keeps_a_rate_stands_for_its_attention() -> None:
    model, inputs = bert()
    cd.contextualize(model.eval(), replace=r"bert\.encoder\.layer\.1\.attention\.self\.dropout", example=inputs)
    assert list(cd.sites(model)) == ["bert.encoder.layer.1.attention.self.contextual_dropout"]
    with torch.no_grad():  # the other attention layer has no site and still works
        model(**inputs)


def test_configurations_know_nothing_of_it(tmp_path: Path) -> None:
    model, inputs = bert()
    cd.contextualize(model.eval(), example=inputs)
    assert model.config._attn_implementation == IMPLEMENTATION
    assert "contextual" not in model.config.to_json_string()


def test_sites_of_a_file_on_a_new_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = bert()
    plain = {name: value.clone() for name, value in model.state_dict().items()}
    cd.contextualize(model.eval(), example=inputs, initialisation="he", temperature=1.0)
    cd.save_sites(model, tmp_path / "sites.safetensors")
    again, _ = bert()
    again.load_state_dict(plain)
    cd.load_sites(again.eval(), tmp_path / "sites.safetensors")
    with torch.no_grad():
        torch.testing.assert_close(again(**inputs).logits, model(**inputs).logits)
