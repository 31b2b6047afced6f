"""The gateway to GitHub: `github_api.py` sends requests, `pull_requests.py` reads and comments pull requests."""
