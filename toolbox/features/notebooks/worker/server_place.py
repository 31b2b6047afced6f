"""Runs kernels and checks on a Jupyter server, which is reached by REST and by the websockets of the kernels."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from toolbox.features.notebooks.worker import server_files, server_helper
from toolbox.features.notebooks.worker.execution_place import Ended, PlaceError
from toolbox.features.notebooks.worker.failure_texts import one_line
from toolbox.features.notebooks.worker.notebook_results import Fault
from toolbox.features.notebooks.worker.notebook_settings import Limits, Runtime, Settings
from toolbox.features.notebooks.worker.server_helper import ServerHelper
from toolbox.features.notebooks.worker.server_kernels import ServerKernel
from toolbox.features.notebooks.worker.server_rest import ReplyError, ServerAccess, ServerRest
from toolbox.features.notebooks.worker.time_limits import GRACE_SECONDS, SERVER_START_SECONDS

_MAX_NAMES: Final = 20
_BASH: Final = ("bash", "--norc", "--noprofile")


@contextmanager
def opened(settings: Settings, variables: Mapping[str, str]) -> Iterator[ServerPlace]:
    """Provide the Jupyter server that the variables name as the place. Remove the files and kernels of the place at the
    end.

    Raises:
        PlaceError: the server does not answer, or lacks the kernel of the runtime.
    """
    rest = ServerRest(ServerAccess.from_variables(variables))
    place = ServerPlace(rest, settings.runtime, settings.limits)
    try:
        yield place
    finally:
        place.close()


class ServerPlace:
    """Runs the kernels and checks of a runtime on a Jupyter server. Implements `Place`.

    The files of the place are in a directory of their own on the server.
    """

    def __init__(self, rest: ServerRest, runtime: Runtime, limits: Limits) -> None:
        self._rest = rest
        self._limits = limits
        self._kernels = _KernelNames(rest, runtime.kernel)
        self._directory = f"topgallant-{uuid.uuid4().hex[:16]}"
        self._resources = ExitStack()
        self._helper_: ServerHelper | None = None
        self._count = 0
        server_files.create_directory(rest, self._directory)

    def close(self) -> None:
        """Remove the directory of the place, and shut down its kernels."""
        with suppress(PlaceError, ReplyError):
            if self._kernels.python is None:
                server_files.delete(self._rest, self._directory)
            else:
                helper = self._helper()
                helper.call("remove", helper.call("directory"))
        self._resources.close()
        with suppress(PlaceError, ReplyError, KeyError, TypeError):
            server_helper.end_sessions(self._rest, self._directory)

    @contextmanager
    def kernel(self, directory: Path) -> Iterator[ServerKernel]:
        """Start a kernel of the runtime in a copy of a directory on the server."""
        self._count += 1
        remote = f"{self._directory}/{self._count}"
        kills = self._oom_kills()
        uploaded = server_files.upload(self._rest, directory, remote)
        with server_helper.session(self._rest, remote, "kernel", self._kernels.runtime) as kernel_id:
            kernel = ServerKernel(
                rest=self._rest,
                kernel_id=kernel_id,
                directory=self._directory,
                process=self._process(kernel_id),
                helper_kernel=self._kernels.python,
                was_out_of_memory=lambda: self._oom_kills() > kills,
            )
            try:
                yield kernel
            finally:
                kernel.close()
        ended = kernel.ended()
        if ended is None or ended.fault is not Fault.SERVER:
            self._fetch(remote, directory, uploaded)

    def _fetch(self, remote: str, directory: Path, uploaded: dict[str, server_files.RemoteFile]) -> None:
        """Fetch the files that the notebook made, and remove the copy of the directory."""
        left_out = server_files.fetch(self._rest, remote, directory, uploaded)
        if left_out:
            names = ", ".join(one_line(name, 200) for name in left_out[:_MAX_NAMES])
            print(f"{len(left_out)} files of the notebook were not fetched: {names}", flush=True)
        with suppress(PlaceError, ReplyError):  # `close` removes the directory of the place
            if self._kernels.python is None:
                server_files.delete(self._rest, remote)
            else:
                helper = self._helper()
                helper.call("remove", f"{helper.call('directory')}/{self._count}")

    def shell(self, script: str, variables: Mapping[str, str], *, timeout: float) -> Ended:
        """Run a script with bash, in an empty directory of the server."""
        return self._run(_BASH, script, variables, timeout)

    def python(self, source: str, *, timeout: float) -> Ended:
        """Run a program with the Python of the runtime's kernel, in an empty directory of the server."""
        if not self._kernels.is_python:
            raise PlaceError(Fault.NO_KERNEL, f"the kernel {self._kernels.runtime} is not a Python kernel")
        return self._run((), source, {}, timeout)

    def _run(self, command: tuple[str, ...], source: str, variables: Mapping[str, str], timeout: float) -> Ended:
        helper, limit = self._helper(), self._limits.output_bytes
        arguments = (list(command), source, dict(variables), timeout, limit)
        result = helper.call("run", *arguments, seconds=timeout + GRACE_SECONDS)
        try:
            texts = [
                self._output(helper, result, name, min(int(size), limit + 1))
                for name, size in zip(("stdout", "stderr"), result["sizes"], strict=True)
            ]
            fault = Fault(result["fault"]) if result["fault"] else None
            message = _MESSAGES[fault].format(seconds=timeout, size=limit) if fault else ""
            return Ended(int(result["status"]), texts[0], texts[1], fault, message)
        except (KeyError, TypeError, ValueError):
            raise PlaceError(Fault.SERVER, "a helper kernel on the Jupyter server sent a malformed reply") from None
        finally:
            with suppress(PlaceError, KeyError, TypeError):
                helper.call("remove", result["scratch"])

    @staticmethod
    def _output(helper: ServerHelper, result: Any, name: str, size: int) -> str:
        content = b""
        while len(content) < size:
            piece = base64.b64decode(helper.call("read", result["scratch"], name, len(content)))
            if not piece:
                break
            content += piece
        return content[:size].decode("utf-8", "replace")

    def _helper(self) -> ServerHelper:
        """Return the kernel that runs programs, and start it first if necessary."""
        if self._helper_ is None:
            name = self._kernels.python
            if name is None:
                raise PlaceError(Fault.NO_KERNEL, "the Jupyter server has no Python kernel, which checks need")
            self._helper_ = self._resources.enter_context(
                server_helper.started(self._rest, self._directory, "helper", name)
            )
        return self._helper_

    def _oom_kills(self) -> int:
        """Return how many processes of the server were killed for lack of memory since its start; -1 if unknown."""
        try:
            return int(self._helper().call("oom_kills"))
        except (PlaceError, TypeError, ValueError):
            return -1

    def _process(self, kernel_id: str) -> int | None:
        """Return the id of the process of a kernel on the server; None if it is unknown."""
        if not self._kernels.is_python:
            return None
        with suppress(PlaceError, TypeError, ValueError), server_helper.dialog(self._rest, kernel_id) as dialog:
            return int(dialog.evaluate("__import__('os').getpid()", SERVER_START_SECONDS))
        return None


class _KernelNames:
    """The kernels of a server.

    Args:
        name: the kernel of the runtime; None for the default kernel of the server.

    Raises:
        PlaceError: the server has no such kernel, or does not answer.
    """

    def __init__(self, rest: ServerRest, name: str | None) -> None:
        try:
            document = rest.json("GET", "/api/kernelspecs")
            languages = {
                str(kernel): str(model["spec"].get("language", "")).lower()
                for kernel, model in document["kernelspecs"].items()
            }
            self.runtime = name or str(document["default"])
        except (ReplyError, AttributeError, KeyError, TypeError) as error:
            raise PlaceError(
                Fault.SERVER, f"the Jupyter server does not list its kernels: {one_line(str(error))}"
            ) from None
        if self.runtime not in languages:
            names = ", ".join(one_line(each, 100) for each in sorted(languages)[:_MAX_NAMES]) or "none"
            raise PlaceError(
                Fault.NO_KERNEL, f"the Jupyter server has no kernel {self.runtime}; its kernels are: {names}"
            )
        self.is_python = languages[self.runtime] == "python"
        others = sorted(kernel for kernel, language in languages.items() if language == "python")
        self.python = self.runtime if self.is_python else next(iter(others), None)


_MESSAGES: Final = {
    Fault.TIMEOUT: "the program exceeded its time limit of {seconds:g} s",
    Fault.TOO_MUCH_OUTPUT: "the program wrote more than {size} bytes",
    Fault.OUT_OF_MEMORY: "the program was killed because it exceeded the memory of the server",
}
