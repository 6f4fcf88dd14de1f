"""How runs are started: on this machine, on a cluster, as several processes."""
