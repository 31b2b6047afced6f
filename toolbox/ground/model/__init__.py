"""Frozen data and errors that every layer shares. Nothing here reads or writes anything."""
