"""Converted causal networks do not see the future."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    TrainingArguments,
)

import contextual_dropout as cd
from contextual_dropout.conversion.causality import causal_by_construction
from contextual_dropout.integrations.transformers import ELBOTrainer
from tests.conversion.causal import NETWORKS, VOCABULARY, converted, inputs, logits, text
from tests.exact.enumeration import FAILURE_RATE

GENERATORS = ["gpt2", "llama", "t5", "bart"]
pytestmark = pytest.mark.filterwarnings("ignore::contextual_dropout.ConversionWarning")


def with_another_end(ids: Tensor, positions: int = 1) -> Tensor:
    other = ids.clone()
    other[:, -positions:] = (ids[:, -positions:] - 2) % (VOCABULARY - 3) + 3
    return other


def movement(model: nn.Module, name: str, *, sampled: bool = False) -> Tensor:
    """How far the logits of each position move when the last token changes, with the same noise."""
    ids = text()
    outputs = []
    for each in (ids, with_another_end(ids)):
        torch.manual_seed(1)
        if sampled:
            with cd.sampling(model):
                outputs.append(logits(model, name, each))
        else:
            outputs.append(logits(model, name, each))
    return (outputs[0] - outputs[1]).detach().abs().amax((0, 2))


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("with_example", [True, False])
def test_earlier_logits_do_not_move(name: str, family: str, with_example: bool) -> None:
    """With an example, also through sites of dropout that is called as a function (BART's)."""
    model = converted(name, family=family, **({"example": inputs(name, text())} if with_example else {}))
    for sampled in (False, True):
        moved = movement(model, name, sampled=sampled)
        assert moved[:-1].max() <= 1e-5
        assert moved[-1] > 1e-2
    model.train()
    assert movement(model, name)[:-1].max() <= 1e-5


@pytest.mark.parametrize("name", NETWORKS)
def test_pooled_sites_do_see_it(name: str) -> None:
    """The test above would notice: on request the sites pool, as they all did before."""
    assert movement(converted(name, positions="pooled"), name)[:-1].max() > 1e-4


@pytest.mark.parametrize("kind", ["entropy", "scores", "queries", "weights"])
@pytest.mark.parametrize("name", ["gpt2", "encoder"])
def test_every_context_of_attention_reads_what_the_query_may_see(name: str, kind: str) -> None:
    model = converted(name, attention_context=kind)
    assert movement(model, name)[:-1].max() <= 1e-5


@pytest.mark.parametrize("name", GENERATORS)
def test_the_cache_gives_the_logits_of_the_whole_sequence(name: str) -> None:
    model: Any = converted(name, example=inputs(name, text()))
    ids = text(length=7)
    with torch.no_grad():
        whole = logits(model, name, ids)
        key = "decoder_input_ids" if "decoder_input_ids" in inputs(name, ids) else "input_ids"
        cache, steps = None, []
        for token in ids.split(1, 1):
            out = model(**(inputs(name, ids) | {key: token}), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            steps.append(out.logits)
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", GENERATORS)
def test_generation_under_sampling_differs_between_draws(name: str) -> None:
    model: Any = converted(name)
    prompt = {"input_ids": text(length=4)}
    options = {"do_sample": False, "max_new_tokens": 12, "min_new_tokens": 12}
    plain = [model.generate(**prompt, **options) for _ in range(2)]
    assert torch.equal(*plain)
    with cd.sampling(model):
        drawn = {tuple(model.generate(**prompt, **options).flatten().tolist()) for _ in range(8)}
    assert len(drawn) > 1


def test_left_padding_changes_nothing_of_the_text() -> None:
    """A site that pooled would read the padding."""
    model: Any = converted("gpt2")
    ids = text(length=5)
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
    mask = (torch.arange(8) >= 3).long().expand(2, 8)
    places = (torch.arange(8) - 3).clamp_min(0).expand(2, 8)
    with torch.no_grad():
        short = model(input_ids=ids).logits
        long = model(input_ids=padded, attention_mask=mask, position_ids=places).logits[:, 3:]
    torch.testing.assert_close(long, short, atol=1e-5, rtol=0)


# --- training ----------------------------------------------------------------------------------------------------

WORDS = 10


def t5(positions: Any) -> Any:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.3}
    config = T5Config(vocab_size=WORDS + 2, **sizes, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config)
    example = random_targets(2)
    return cd.contextualize(model, positions=positions, example=example, temperature=1.0, initialisation="he")


def random_targets(examples: int) -> dict[str, Tensor]:
    return {
        "input_ids": torch.tensor([[2, 3]]).expand(examples, 2),
        "labels": torch.randint(2, WORDS + 2, (examples, 3)),
    }


def log_likelihood(outputs: Any, batch: dict[str, Tensor]) -> Tensor:
    return outputs.logits.log_softmax(-1).gather(-1, batch["labels"].unsqueeze(-1)).squeeze(-1).sum(1)


@pytest.mark.parametrize("positions", [None, "pooled"])
def test_training_on_random_tokens_stays_above_the_entropy(positions: Any, tmp_path: Path) -> None:
    """No causal model has an expected NLL below log V on uniform tokens; sites that pool learn to read the targets."""
    torch.manual_seed(0)
    model, steps = t5(positions), 250
    every = random_targets(64 * steps)
    data = [{key: value[i] for key, value in every.items()} for i in range(64 * steps)]
    options = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    options["lr_scheduler_type"] = "constant"
    args = TrainingArguments(
        str(tmp_path), max_steps=steps, per_device_train_batch_size=64, learning_rate=1e-2, use_cpu=True, **options
    )
    objective = {"estimator": "straight-through", "kl_weight": 1e-5, "log_likelihood": log_likelihood}
    ELBOTrainer(model, args, train_dataset=data, **objective).train()
    batch = random_targets(4000)
    model.eval()
    with torch.no_grad():
        nll = -log_likelihood(model(**batch), batch) / 3
    z = ((nll.mean() - math.log(WORDS)) / (nll.std() / math.sqrt(len(nll)))).item()
    bound = stats.norm.isf(FAILURE_RATE / 2)
    assert z > -bound if positions is None else z < -bound


# --- what is causal ----------------------------------------------------------------------------------------------


def own_positions(model: nn.Module) -> set[str]:
    return {name for name, site in cd.sites(model).items() if len(site.batch_dims) > 1}


def test_an_encoder_may_look_everywhere() -> None:
    for name in ("t5", "bart"):
        model = converted(name)
        assert own_positions(model) == {each for each in cd.sites(model) if "decoder" in each}


def test_bert_pools_and_can_be_told_not_to() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=50, **sizes)
    ids = torch.randint(3, 50, (2, 6))
    assert own_positions(cd.contextualize(BertModel(config), example={"input_ids": ids})) == set()
    model = cd.contextualize(BertModel(config), positions="own", example={"input_ids": ids})
    assert own_positions(model) == set(cd.sites(model))
    assert {tuple(keep.shape[:2]) for keep in cd.keep_probabilities(model, input_ids=ids).values()} == {(2, 6)}
    decoder = BertModel(BertConfig(vocab_size=50, is_decoder=True, **sizes))
    cd.contextualize(decoder)
    decoder(input_ids=ids)
    assert own_positions(decoder) == set(cd.sites(decoder))


@pytest.mark.parametrize("with_example", [True, False])
def test_classifying_with_a_causal_network(with_example: bool) -> None:
    """Its output has no positions, but its attention is causal."""
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50, "pad_token_id": 0}
    example = {"input_ids": torch.randint(3, 50, (2, 6))}
    model = GPT2ForSequenceClassification(GPT2Config(**sizes))
    cd.contextualize(model, **({"example": example} if with_example else {}))
    model(**example)
    assert own_positions(model) == set(cd.sites(model))


class Written(nn.Module):
    """Attention as people write it; the network classifies, or says something of each position."""

    def __init__(self, *, causal: bool, fused: bool, dense: bool) -> None:
        super().__init__()
        self.causal, self.fused, self.dense = causal, fused, dense
        self.embed, self.project = nn.Embedding(20, 8), nn.Linear(8, 24)
        self.attention_dropout, self.dropout, self.head = nn.Dropout(0.2), nn.Dropout(0.2), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        q, k, v = self.project(x).chunk(3, -1)
        if self.fused:
            x = x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            allowed = torch.ones(ids.shape[1], ids.shape[1]).tril().bool() if self.causal else torch.tensor(True)
            scores = (q @ k.mT).masked_fill(~allowed, -math.inf)
            x = x + self.attention_dropout(scores.softmax(-1)) @ v
        x = self.dropout(x)
        out: Tensor = self.head(x if self.dense else x[:, -1])
        return out


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_an_example_tells_whether_attention_is_causal(causal: bool, fused: bool, dense: bool) -> None:
    torch.manual_seed(0)
    model = Written(causal=causal, fused=fused, dense=dense).eval()
    ids = torch.randint(20, (2, 6))
    cd.contextualize(model, example=ids)
    keep = cd.keep_probabilities(model, ids)
    assert keep["dropout"].shape == ((2, 6, 8) if causal else (2, 8))


def test_code_that_can_mask_has_own_positions_unless_an_example_says_otherwise() -> None:
    model = cd.contextualize(Written(causal=False, fused=False, dense=True))
    model(torch.randint(20, (2, 6)))
    assert own_positions(model) == {"attention_dropout", "dropout"}


class Convolutional(nn.Module):
    """Channels first, and padded on the left alone, or on both sides."""

    def __init__(self, padding: tuple[int, int]) -> None:
        super().__init__()
        self.first, self.second, self.padding = nn.Conv1d(3, 8, 3), nn.Conv1d(8, 2, 3), padding
        self.dropout, self.channels = nn.Dropout(0.2), nn.Dropout1d(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.first(nn.functional.pad(x, self.padding)).relu())
        out: Tensor = self.second(nn.functional.pad(self.channels(x), self.padding))
        return out


def test_causal_convolutions() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9)
    model = cd.contextualize(Convolutional((2, 0)).eval(), example=x, temperature=1.0, initialisation="he")
    keep = cd.keep_probabilities(model, x)
    assert [tuple(each.shape) for each in keep.values()] == [(2, 9, 8), (2, 9, 8)]
    other = torch.cat([x[..., :-1], torch.randn(2, 3, 1)], -1)
    moved = (model(x) - model(other)).abs().amax((0, 1))
    assert moved[:-1].max() <= 1e-6
    assert moved[-1] > 1e-3
    assert own_positions(cd.contextualize(Convolutional((1, 1)), example=x)) == set()


class LanguageModel(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embed, self.before, self.after = nn.Embedding(20, 8), nn.Dropout(0.1), nn.Dropout(0.1)
        self.lstm = nn.LSTM(8, 6, 2, dropout=0.2, **options)
        self.head = nn.LazyLinear(20)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.after(self.lstm(self.before(self.embed(ids)))[0]))
        return out


@pytest.mark.parametrize("with_example", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_language_models(batch_first: bool, with_example: bool) -> None:
    torch.manual_seed(0)
    model, ids = LanguageModel(batch_first=batch_first).eval(), torch.randint(20, (2, 7) if batch_first else (7, 2))
    model(ids)
    cd.contextualize(model, temperature=1.0, initialisation="he", **({"example": ids} if with_example else {}))
    other = ids.clone()
    other[(slice(None), -1) if batch_first else -1] += 1
    moved = (model(ids) - model(other % 20)).abs().amax((0 if batch_first else 1, 2))
    assert moved[:-1].max() <= 1e-6
    assert moved[-1] > 1e-3
    assert own_positions(model) == {"before", "after", "lstm.contextual_dropout.0"}
    if with_example:
        assert {site.batch_dims for site in cd.sites(model).values()} == {(0, 1) if batch_first else (1, 0)}
    both = LanguageModel(batch_first=batch_first, bidirectional=True)
    both(ids)
    assert own_positions(cd.contextualize(both, example=ids)) == set()


def test_packed_sequences_of_position_wise_sites() -> None:
    """Padding is not read: each sequence alone has the same outputs."""
    torch.manual_seed(0)
    model = cd.contextualize(
        nn.ModuleList([nn.LSTM(4, 6, 2, dropout=0.3)]), temperature=1.0, initialisation="he"
    ).eval()[0]
    sequences = [torch.randn(length, 4) for length in (3, 6, 4)]
    packed = nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    with torch.no_grad():
        together, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0])
        for i, sequence in enumerate(sequences):
            torch.testing.assert_close(together[: len(sequence), i], model(sequence.unsqueeze(1))[0][:, 0])


# --- what is unknown ---------------------------------------------------------------------------------------------


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


@pytest.mark.filterwarnings("error")
def test_attention_that_gets_its_mask_when_called() -> None:
    with pytest.warns(cd.ConversionWarning, match="whether the network is causal is unknown without an example"):
        model = cd.contextualize(encoder())
    assert "note: whether the network is causal" in repr(cd.conversion_of(model))
    x, mask = torch.randn(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5)
    model(x)
    with pytest.warns(UserWarning, match="pools over all queries of attention that is causal"):
        model(x, mask=mask)
    model(x, mask=mask)  # said once
    for options in ({"positions": "pooled"}, {"positions": "own"}, {"example": {"src": x, "mask": mask}}):
        model = cd.contextualize(encoder(), **options)
        model(x, mask=mask)
        assert not cd.conversion_of(model).notes
    with pytest.warns(cd.ConversionWarning, match="is unknown with this example"):
        cd.contextualize(encoder(), example=x[:, :1])


def test_a_choice_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="positions must be 'own', 'pooled' or None"):
        cd.contextualize(encoder(), positions="causal")  # type: ignore[arg-type]


def test_positions_of_some_layers() -> None:
    x = torch.randn(2, 5, 8)
    model = cd.contextualize(encoder(), positions="pooled", overrides={"dropout1": {"positions": "own"}}, example=x)
    assert own_positions(model) == {"layers.0.dropout1"}


def test_decoders_of_torch() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, 0.2, batch_first=True).eval()
    cd.contextualize(model, temperature=1.0, initialisation="he")
    source, target = torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    other = torch.cat([target[:, :-1], torch.randn(2, 1, 8)], 1)
    moved = (model(source, target, tgt_mask=mask) - model(source, other, tgt_mask=mask)).abs().amax((0, 2))
    assert moved[:-1].max() <= 1e-6
    assert moved[-1] > 1e-3
    assert own_positions(model) == {name for name in cd.sites(model) if "decoder" in name}


def test_verdicts_by_construction() -> None:
    verdicts: Callable[..., dict[str, str]] = causal_by_construction
    assert verdicts(nn.Sequential(nn.Linear(2, 2), nn.Dropout()), ["1"]) == {"1": "open"}
    assert verdicts(encoder(), ["layers.0.dropout"]) == {"layers.0.dropout": "unknown"}
    beside_images = nn.ModuleDict({"image": nn.Conv2d(1, 1, 1), "text": nn.LSTM(2, 2, 2), "drop": nn.Dropout()})
    assert verdicts(beside_images, ["drop", "text"]) == {"drop": "unknown", "text": "causal"}


class Jitter(nn.Module):
    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.draw, self.dropout, self.head = draw, nn.Dropout(0.2), nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.head(self.dropout(x) + self.draw())
        return out


@pytest.mark.filterwarnings("error")
def test_networks_that_draw_by_themselves() -> None:
    """Global generators are set alike for all passes; what has its own is said. Buffers are as before."""
    x = torch.randn(2, 3, 4)
    for draw in (random.random, lambda: float(np.random.random()), lambda: float(torch.rand(()))):
        model = cd.contextualize(Jitter(draw), example=x)
        assert own_positions(model) == {"dropout"}
        assert model.calls == 0
    with pytest.warns(cd.ConversionWarning, match="is unknown with this example, since two passes on it differ"):
        cd.contextualize(Jitter(random.Random(0).random), example=x)
