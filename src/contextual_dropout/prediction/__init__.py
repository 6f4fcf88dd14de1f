"""Predicting: K sampled passes make a prediction."""
