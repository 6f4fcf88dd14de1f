"""Readers of file formats, for files that nobody has to trust."""
