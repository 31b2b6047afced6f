"""A program that connects the processes of one play with the interpreter for modules on one SSH host.

`ssh_links` starts it. The processes of the play send it requests in the format of the module server of this machine.
The program relays them through the pipes of an `ssh` process to `toolbox.targets.agent.remote_modules`. It ends with
the play, with the `ssh` process, or after a reset of the connection. It imports little, because each play starts it
again.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import IO, Final, NoReturn

from toolbox.ground.kit.streams import write_all
from toolbox.targets import bootstrap
from toolbox.targets.agent.relay import CHUNK_BYTES, HELLO, STREAMS, InvalidFrame, Relay

END: Final = b"end\n"
"""What a client sends, without descriptors, to end this program as soon as no module uses it."""
_LIFELINE: Final = 0
_START_SECONDS: Final = 30.0
_END_SECONDS: Final = 5.0
_ERROR_SECONDS: Final = 1.0  # the master process of a connection may keep the pipe open
_MAX_ANSWER_BYTES: Final = 1 << 12  # the answers of a module server are short
_KEPT_ERRORS: Final = 1 << 12


def main() -> None:
    """Relay requests until the standard input or the `ssh` process ends.

    The arguments are the descriptors of the listening socket and of the pipes to the standard input, output and error
    of the `ssh` process, and its process id.
    """
    listener, sink, source, errors, pid = map(int, sys.argv[1:])
    link = _Link(socket.socket(fileno=listener), sink, os.pidfd_open(pid))
    threading.Thread(target=link.receive_until_end, args=(os.fdopen(source, "rb"), errors), daemon=True).start()
    threading.Thread(target=link.send_program, daemon=True).start()
    with suppress(OSError):  # `ssh` has ended
        link.forward()
    link.end()


class _Link(Relay):
    """The side of this machine.

    Args:
        ssh: a descriptor of the process `ssh`.
    """

    def __init__(self, listener: socket.socket, sink: int, ssh: int) -> None:
        super().__init__(sink)
        self._listener = listener
        self._ssh = ssh
        self._errors = b""
        self._errors_have_ended = threading.Event()
        self._numbers = itertools.count(1)
        self._open: set[int] = set()  # the connections whose clients have not ended
        self._has_started = self._is_retired = False
        self._answer_bytes: dict[int, int] = {}
        self._start_timer = threading.Timer(_START_SECONDS, self.end)
        self._start_timer.daemon = True
        self._start_timer.start()
        self.watch(_LIFELINE, self.end)

    def send_program(self) -> None:
        """Send the program for the host, and then accept connections. `ssh` may not read for some time."""
        with suppress(OSError):  # `ssh` has ended
            write_all(self._sink, bootstrap.first_line() + bootstrap.program("remote_modules"))
            self._has_started = True
            self.watch(self._listener.fileno(), self._accept)

    def receive_until_end(self, source: IO[bytes], errors: int) -> None:
        """Receive frames. At the end, tell the reason to the clients, and end this process."""
        # If the login shell prints something, this belongs to the output of each module in the ordinary way.
        if source.read(len(HELLO)) != HELLO or select.select([errors], [], [], 0)[0]:
            self._kill()
            os._exit(0)
        self._start_timer.cancel()
        threading.Thread(target=self._keep_errors, args=(errors,), daemon=True).start()
        reason = ""
        try:
            self.receive(source)
        except InvalidFrame as error:
            reason = str(error)
            self._kill()
        self._errors_have_ended.wait(_ERROR_SECONDS)
        reason = reason or self._errors.decode(errors="replace").strip()
        select.select([self._ssh], [], [], _ERROR_SECONDS)
        self._refuse(reason)
        os._exit(0)

    def end(self) -> NoReturn:
        """End the program on the host, and with it `ssh` and this process."""
        if self._has_started:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._sink)  # closes the pipe; other threads may still write
            # The other thread ends this process at the end of `ssh`.
            threading.Event().wait(_END_SECONDS)
        self._kill()
        os._exit(0)

    def _keep_errors(self, errors: int) -> None:
        """Keep the end of what `ssh` and the host print as errors."""
        while content := os.read(errors, CHUNK_BYTES):
            self._errors = (self._errors + content)[-_KEPT_ERRORS:]
        self._errors_have_ended.set()

    def _kill(self) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(self._ssh, signal.SIGKILL)

    def handle(self, number: int, stream: int, content: bytes) -> None:
        """Limit what the host can send as an answer."""
        if stream == 0:
            count = self._answer_bytes.pop(number, 0) + len(content)
            if count > _MAX_ANSWER_BYTES:
                raise InvalidFrame("an answer is too long")
            if content:
                self._answer_bytes[number] = count
        super().handle(number, stream, content)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            content, descriptors, _, _ = socket.recv_fds(connection, CHUNK_BYTES, len(STREAMS))
        except OSError:  # the client has ended
            content, descriptors = b"", []
        if content == END:
            self._retire()
        if not content or len(descriptors) != len(STREAMS):
            for descriptor in descriptors:
                os.close(descriptor)
            connection.close()
            return
        number = next(self._numbers)
        self._open.add(number)
        nothing, *outputs = descriptors
        os.close(nothing)
        self.add(number, connection, {}, dict(enumerate(outputs, 1)))
        self.send(number, 0, content)

    def _retire(self) -> None:
        """Accept no more connections, and end after the last one."""
        self._is_retired = True
        self.unwatch(self._listener.fileno())
        self._listener.close()
        self._end_if_unused()

    def send(self, number: int, stream: int, content: bytes) -> None:
        """Send a frame. The last frame of a connection may be the last frame of this program."""
        super().send(number, stream, content)
        if stream == 0 and not content:
            self._open.remove(number)
            self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._is_retired and not self._open:
            self.end()

    def _refuse(self, reason: str) -> None:
        answer = json.dumps({"refused": reason}).encode() + b"\n"
        for (_, stream), writer in list(self._writers.items()):
            if stream == 0 and writer is not None:
                with suppress(OSError):
                    write_all(writer, answer)


if __name__ == "__main__":
    main()
