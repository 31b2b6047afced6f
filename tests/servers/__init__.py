"""Real servers on this machine, for tests and for benchmarks: each with its own keys, files and port."""
