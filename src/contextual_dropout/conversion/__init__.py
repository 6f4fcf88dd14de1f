"""Putting sites into somebody else's network, and taking them out again."""
