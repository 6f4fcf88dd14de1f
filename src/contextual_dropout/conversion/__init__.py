"""Putting sites into an existing network, and taking them out again."""
