"""Renders runs for forges such as GitHub."""
