"""Makes and caches virtual environments, one for each combination of requirements and interpreter.

    DIRECTORY/DIGEST/             a virtual environment, made at this path because an environment cannot be moved
    DIRECTORY/DIGEST/COMPLETE     written and synced last; its time is the last use
    DIRECTORY/DIGEST.lock         locked exclusively to make or remove the environment, and shared to use it

A worker that is killed leaves an environment without COMPLETE. The next worker removes such an environment and makes it
again. It does the same with an environment whose packages a test has changed.

The environments of a worker, with the time in which it waits for other workers, have one time limit.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from . import pip_failures, requirement_lines, worker_processes
from .environment_log import EnvironmentLog
from .execution_place import PlaceError
from .failure_texts import one_line
from .file_locks import FileLock
from .notebook_results import Fault
from .time_limits import DESCRIBE_SECONDS

COMPLETE: Final = "complete.json"
_PIP_LOG: Final = "pip.log"
_REQUIREMENTS: Final = "requirements.txt"
_TEMPORARY: Final = "tmp"  # of pip, so that an installation that is killed leaves no files elsewhere
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DAY: Final = 86400.0
_MAX_TRIES: Final = 4
_PIP: Final = (
    *("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"),
    *("--retries=2", "--timeout=20"),
)
_DESCRIBE: Final = (  # what an environment depends on; sys.base_prefix distinguishes installations of one version
    "import json, platform, sys, sysconfig; "
    "print(json.dumps([platform.python_implementation(), '%d.%d' % sys.version_info[:2], sysconfig.get_platform(), "
    "sys.base_prefix]))"
)
_FOREIGN: Final = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_REQUIREMENT", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Environment:
    """An environment that is in use, so that no other worker removes it.

    Args:
        path: the directory of the environment.
        digest: the name of the environment.
        seconds: how long the installation took; None if the environment was in the cache.
        packages: the names and versions of the installed packages, such as `numpy-2.1.0`.
        lock: the shared lock.
    """

    path: Path
    digest: str
    seconds: float | None
    packages: Sequence[str]
    lock: FileLock

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.path / "bin/python"


@dataclass(frozen=True)
class EnvironmentStore:
    """The environments of a user.

    Args:
        directory: contains the environments.
        log: gets the output of installations.
        timeout: the time limit for all environments of the worker, in seconds.
        started: the time at which the limit began, by `time.monotonic`.
    """

    directory: Path
    log: EnvironmentLog
    timeout: float
    started: float = field(default_factory=time.monotonic)

    @contextmanager
    def prepared(self, requirements: Sequence[str], python: str) -> Iterator[Environment]:
        """Make an environment, or take it from the cache, and use it while the context is active.

        Raises:
            PlaceError: the requirements are invalid or cannot be installed, the index does not answer, or the time
                limit is exceeded.
        """
        environment = self.acquire(requirements, python)
        try:
            yield environment
        finally:
            environment.lock.release()

    def acquire(self, requirements: Sequence[str], python: str) -> Environment:
        """Return an environment whose lock the caller must release.

        Raises:
            PlaceError: as `prepared` does.
            OSError: the disk is full.
        """
        try:
            return self._acquire(requirements, python)
        except OSError as error:
            if error.errno in _FULL:
                raise
            message = f"{self.directory} cannot be used for environments: {error.strerror}; set `environments`"
            raise PlaceError(Fault.ENVIRONMENT, message) from None

    def _acquire(self, requirements: Sequence[str], python: str) -> Environment:
        try:
            lines = requirement_lines.normalized(requirements)
            digest = requirement_lines.digest(lines, _interpreter(python))
        except ValueError as error:
            raise PlaceError(Fault.ENVIRONMENT, str(error)) from None
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.directory / digest
        lock = FileLock(self.directory / f"{digest}.lock")
        seconds = None
        for _ in range(_MAX_TRIES):
            self._take(lock, digest, exclusive=False)
            packages = _installed(path)
            if packages is not None:
                os.utime(path / COMPLETE)
                self.log.line(f"environment {digest}: {'made' if seconds is not None else 'taken from the cache'}")
                return Environment(path, digest, seconds, packages, lock)
            lock.release()
            seconds = self._make(path, lines, python, lock)
        raise PlaceError(Fault.ENVIRONMENT, f"{path} was changed while it was made; stop the programs that write there")

    def _make(self, path: Path, lines: Sequence[str], python: str, lock: FileLock) -> float | None:
        """Make an environment under its exclusive lock. Return the duration; None if another worker has made it."""
        self._take(lock, path.name, exclusive=True)
        try:
            if _installed(path) is not None:
                return None
            started = time.monotonic()
            _remove(path)
            try:
                self._install(path, lines, python, lock)
            except BaseException:
                _remove(path)
                raise
            return time.monotonic() - started
        finally:
            lock.release()

    def _install(self, path: Path, lines: Sequence[str], python: str, lock: FileLock) -> None:
        self.log.line(f"environment {path.name}: installing {len(lines)} requirements with {python}")
        path.mkdir(mode=0o700)
        requirements = path / _REQUIREMENTS
        requirements.touch(mode=0o600)  # a URL may contain credentials
        requirements.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        pip_log = path / _PIP_LOG
        interpreter = str(path / "bin/python")
        pip = [interpreter, *_PIP, f"--log={pip_log}", f"--requirement={requirements}"]
        temporary = path / _TEMPORARY
        temporary.mkdir()
        # venv hides why its own call of ensurepip failed.
        venv = [python, "-m", "venv", str(path), "--without-pip"]
        ensurepip = [interpreter, "-I", "-m", "ensurepip", "--upgrade", "--default-pip"]
        for command in (venv, ensurepip, pip):
            self._run(command, pip_log, python, lock, temporary)
        shutil.rmtree(temporary)
        pip_log.unlink(missing_ok=True)
        packages = _distributions(path)
        for package in packages:
            self.log.write(f"installed {package}\n".encode())
        _mark_complete(path, {"requirements": [pip_failures.masked(line) for line in lines], "packages": packages})

    def _run(self, command: Sequence[str], pip_log: Path, python: str, lock: FileLock, temporary: Path) -> None:
        """Run venv or pip. Raise PlaceError if the program fails.

        The program inherits the lock: if the worker is killed, other workers wait for the end of the program before
        they make the environment.
        """
        end = worker_processes.run(
            command,
            environment={**_variables(os.environ), "TMPDIR": str(temporary)},
            timeout=self._left(),
            receive=self.log.write,
            files=[lock.file],
        )
        self.log.end()
        last = one_line(next((line for line in reversed(self.log.tail) if line.strip()), ""), 200)
        if end.fault is Fault.TIMEOUT:
            raise self._late(f"the installation was ended; its last output is `{last}`")
        if end.status < 0:
            message = f"the signal {-end.status} ended the installation; its last output is `{last}`"
            raise PlaceError(Fault.ENVIRONMENT, message)
        if end.status == 0:
            return
        for line in pip_failures.unfetched(pip_log):
            self.log.write(f"{line}\n".encode())
        tail = list(self.log.tail)
        if pip_failures.is_disk_full(tail):
            raise OSError(errno.ENOSPC, "No space left on device", str(self.directory))
        raise PlaceError(*pip_failures.explain(tail, python))

    def _take(self, lock: FileLock, digest: str, *, exclusive: bool) -> None:
        """Take the lock of an environment. Raise PlaceError if the time limit is exceeded."""
        if lock.acquire(exclusive=exclusive):
            return
        self.log.line(f"environment {digest}: waiting for another worker that uses or makes this environment")
        if not lock.acquire(exclusive=exclusive, timeout=self._left()):
            raise self._late("another worker still uses or makes it")

    def _left(self) -> float:
        """Return the seconds that are left of the time limit."""
        return max(0.0, self.started + self.timeout - time.monotonic())

    def _late(self, detail: str) -> PlaceError:
        message = f"the environment was not ready within {self.timeout:g} s (`environment_timeout`): {detail}"
        return PlaceError(Fault.TIMEOUT, message)

    def prune(self, keep_days: float) -> None:
        """Remove the environments that no worker has used for a number of days. Other files in the directory stay."""
        oldest = time.time() - keep_days * _DAY
        names = [path.name for path in self.directory.glob("*") if _DIGEST.fullmatch(path.name)]
        for path in (self.directory / name for name in sorted(names)):
            lock = FileLock(self.directory / f"{path.name}.lock")
            if path.is_dir() and _last_use(path) < oldest and lock.acquire(exclusive=True):
                if _last_use(path) < oldest:
                    self.log.line(f"environment {path.name}: removed, because it was not used for {keep_days:g} days")
                    _remove(path)
                    lock.remove()
                lock.release()


def directory(configured: str) -> Path:
    """Return the directory of the environments.

    Args:
        configured: a path that may begin with `~`. If the user has no home directory, as in some pods, the environments
            are in the working directory.
    """
    try:
        return Path(configured).expanduser()
    except RuntimeError:
        return Path.cwd() / ".environments"


def _interpreter(python: str) -> list[str]:
    """Return the properties of an interpreter on which an environment depends."""
    try:
        end = worker_processes.run([python, "-I", "-c", _DESCRIBE], timeout=DESCRIBE_SECONDS, output_bytes=1 << 16)
        return [str(part) for part in json.loads(end.stdout)]
    except (OSError, ValueError) as error:
        detail = error.strerror if isinstance(error, OSError) else "the program is not a Python interpreter"
        raise PlaceError(Fault.ENVIRONMENT, f"the Python {python} of the runtime cannot be started: {detail}") from None


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of venv and pip, without options that would install packages elsewhere."""
    variables = {name: value for name, value in environment.items() if name not in _FOREIGN}
    return {**variables, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONNOUSERSITE": "1"}


def _installed(path: Path) -> list[str] | None:
    """Return the packages of a complete environment; None if it is missing, incomplete, damaged or changed."""
    try:
        marker: Any = json.loads((path / COMPLETE).read_text(encoding="utf-8"))
        packages = [str(package) for package in marker["packages"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_usable = os.access(path / "bin/python", os.X_OK) and packages == _distributions(path)
    return packages if is_usable else None


def _distributions(path: Path) -> list[str]:
    """Return the packages whose metadata is in an environment."""
    return sorted(entry.name.removesuffix(".dist-info") for entry in path.glob("lib/python*/site-packages/*.dist-info"))


def _mark_complete(path: Path, content: Mapping[str, Any]) -> None:
    """Write COMPLETE after everything else is on the disk."""
    os.sync()
    scratch = path / f"{COMPLETE}.new"
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path / COMPLETE)
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _last_use(path: Path) -> float:
    """Return the time of the last use of an environment, or the time of its directory if it is incomplete."""
    for place in (path / COMPLETE, path):
        with suppress(OSError):
            return place.stat().st_mtime
    return time.time()


def _remove(path: Path) -> None:
    """Remove an environment. COMPLETE is removed first, so that a partly removed environment is not used."""
    (path / COMPLETE).unlink(missing_ok=True)
    if path.exists():
        shutil.rmtree(path)
