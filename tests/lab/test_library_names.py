"""The lab uses the library as any user would: by its public names, but for those that are listed here."""

from __future__ import annotations

from tests.lab.library_names import imported, not_public

#: Holes in the public interface, or tools that the two packages share. This list only becomes shorter.
KNOWN = {
    "contextual_dropout._atomic.LEFTOVERS",
    "contextual_dropout._atomic.replaced",
    "contextual_dropout._atomic.save_tensors",
    "contextual_dropout._torch_files.read_torch",
    "contextual_dropout.baselines.concrete_dropout.ConcreteDropout",
    "contextual_dropout.baselines.gaussian_dropout.GaussianDropout",
    "contextual_dropout.metrics.pavpu.pavpu",
    "contextual_dropout.metrics.pavpu.pavpu_counts",
    "contextual_dropout.nn.attention_dropout.AttentionDropout",
    "contextual_dropout.nn.encoder.Encoder",
    "contextual_dropout.nn.encoder.GlobalLogits",
    "contextual_dropout.nn.sequence_dropout.SequenceDropout",
    "contextual_dropout.nn.stochastic.Stochastic",
    "contextual_dropout.prediction.classification.Classification",
    "contextual_dropout.replay.generators.isolated",
}


def test_the_lab_imports_no_further_private_name() -> None:
    assert imported()
    assert set(not_public()) - KNOWN == set()
