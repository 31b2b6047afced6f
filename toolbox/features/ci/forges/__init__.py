"""The forges and CI systems: each module tells what started a job of one of them. See `extensions.protocols.Forge`."""
