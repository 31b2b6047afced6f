"""Continuous integration: parses the slash commands in comments on pull requests."""
