"""The names of the files that the agent writes in the directory of an attempt.

lock          locked with `flock` while a supervisor has this workload; the system releases it if that one is killed
started       JSON with the process id of the supervisor; written before the workload starts
stdout.log  stderr.log  samples.csv  gpu_samples.csv
outcome.json  how the workload ended
exit_code     written last: if this file exists, the attempt has ended
files/        the working directory of the workload
src/          the files that the orchestrator sent
"""

from __future__ import annotations

LOCK = "lock"
STARTED = "started"
OUTCOME = "outcome.json"
EXIT_CODE = "exit_code"
SAMPLES = "samples.csv"
GPU_SAMPLES = "gpu_samples.csv"
RESULTS = "files"
SOURCES = "src"
STREAMS = ("stdout", "stderr")


def log_name(stream: str) -> str:
    """Return the name of the log of a stream."""
    return f"{stream}.log"
