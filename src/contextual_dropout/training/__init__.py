"""The objective: closure in, loss out."""
