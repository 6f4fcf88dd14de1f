"""What the sites of a network do."""
