"""Looking at the sites of a network: their spread, their rates, their parameters."""
