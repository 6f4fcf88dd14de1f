"""From K sampled passes to a prediction."""
