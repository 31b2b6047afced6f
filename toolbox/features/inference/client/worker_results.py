"""What the worker leaves: the names of its files, and its exit statuses.

The worker writes the files. Checks, metrics, reports and commands read them from `files/` of an attempt.
"""

from __future__ import annotations

from typing import Final

ANSWERS: Final = "answers.jsonl"
SERVER_LOG: Final = "server.log"
REPORT: Final = "worker.json"
LOAD: Final = "load.json"
LOAD_SAMPLES: Final = "load_samples.csv"

ANSWERED: Final = 0  # each request has an answer, right or wrong; or all steps of the load have ended
INVALID_SETTINGS: Final = 2  # also an invalid request, or a missing library
SERVER_FAILED: Final = 70  # the server ended or did not answer completely
CANNOT_WRITE: Final = 74
NEVER_READY: Final = 75
