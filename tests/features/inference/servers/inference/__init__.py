"""Inference servers that follow a script, and can break every rule of their protocol."""
