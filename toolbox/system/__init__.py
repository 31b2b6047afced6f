"""The gateways to this machine: its environment variables, processes and files. One module each."""
