"""The reproduction of the paper and its tools: runs, data sets, networks, reports, the live page, the command."""
