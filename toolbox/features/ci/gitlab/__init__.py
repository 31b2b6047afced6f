"""The gateway to GitLab: `gitlab_api.py` sends requests, `merge_requests.py` reads and comments merge requests."""
