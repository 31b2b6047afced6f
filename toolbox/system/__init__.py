"""The gateways to this machine, one module each: environment variables, processes, files, signals."""
