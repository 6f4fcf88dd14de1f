"""Readers of file formats, for untrusted files."""
