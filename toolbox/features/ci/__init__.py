"""Continuous integration: what comments on pull requests request, and the workflow files of GitHub Actions."""
