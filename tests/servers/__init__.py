"""Real servers on this machine, for tests and benchmarks. Each has its own keys, files and port."""
