"""Continuous integration: what a comment asks for. The forge's side follows."""
