"""Files of runs on disk: records, networks, and their provenance."""
