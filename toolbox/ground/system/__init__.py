"""The gateways to this machine: one module each for environment variables, processes, files, signals and so on."""
