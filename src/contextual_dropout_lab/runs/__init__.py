"""Experiments: declarative configurations in, one JSON per run out."""
