"""Start runs: on this machine, on a cluster, as several processes."""
