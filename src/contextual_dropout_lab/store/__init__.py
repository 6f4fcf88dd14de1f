"""What runs leave on disk: records, networks, and where they come from."""
