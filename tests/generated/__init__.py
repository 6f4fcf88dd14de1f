"""A tester of random small networks: a grammar of networks, and what must hold for each of them."""
