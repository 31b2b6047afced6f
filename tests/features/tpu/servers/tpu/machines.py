"""The VMs of the nodes: real SSH servers in separate namespaces, or only addresses if a test needs only the API.

Every VM has its own mount, PID, UTS and IPC namespaces, host name, SSH host key, loopback addresses and disk: /home,
/root and /var/lib/topgallant, which remain over a reboot. /tmp, /run and /dev/shm are empty after each boot. The rest
of the file system, and the network, are those of this machine. The SSH server is process 1 of its PID namespace, so its
end ends all processes of the VM. It ends with the test server, also if the test server is killed.

The accounts in the metadata `ssh-keys` exist on the VM, as Google's guest agent makes them. The metadata
`startup-script` is executed as root after each boot. Its output is in the file `startup-script.log` of the VM.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psutil
from google.cloud.tpu_v2 import types

from tests.features.tpu.servers.tpu.catalog import CATALOG
from tests.features.tpu.servers.tpu.clock import Clock
from tests.servers import openssh
from tests.servers.openssh import ServerError

_TPU_PORT: Final = 8470  # the port of the TPU runtime, which the API reports instead of the port of SSH
_BOOT: Final = Path(__file__).with_name("boot.sh")
_TOPGALLANT: Final = Path("/var/lib/topgallant")
_NAMESPACES: Final = ("--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL", "--mount-proc")
_START_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.002
_ACCOUNT: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_FIRST_UID: Final = 2001
_EXTERNAL_NETWORK: Final = 64  # external addresses are 127.64.0.0/11, internal ones 127.96.0.0/11
_INTERNAL_NETWORK: Final = 96


@dataclass(slots=True)
class Machine:
    """One VM.

    Args:
        directory: its disk, configuration and logs.
        process: a process outside the namespaces. When it ends, the VM ends. None while the VM does not run.
        silent: sockets in place of the SSH server, which accept connections and never answer.
        is_on: whether the VM runs, or will boot.
        is_broken: whether the VM never answers, also after a reboot.
    """

    directory: Path
    hostname: str
    addresses: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    silent: list[socket.socket] = field(default_factory=list)
    is_on: bool = True
    is_broken: bool = False

    def log(self) -> str:
        """Return the output of the startup script, of all boots."""
        file = self.directory / "startup-script.log"
        return file.read_text(errors="replace") if file.exists() else ""


class Machines:
    """VMs that do not exist. Their addresses are those of the documentation networks (RFC 5737)."""

    port = 22

    def start(self, node: types.Node, seconds: float) -> Sequence[types.NetworkEndpoint]:  # noqa: ARG002
        """Start all VMs of a node, which accept connections after some seconds, and return their addresses."""
        count = 2 if node.network_config.enable_external_ips else 1
        workers = range(1, CATALOG[node.accelerator_type].workers + 1)
        return [_endpoint([f"192.0.2.{number}", f"203.0.113.{number}"][:count]) for number in workers]

    def restart(self, node: types.Node) -> None:
        """Start all VMs of a node, except running ones."""

    def stop(self, name: str, workers: Iterable[int] | None = None) -> None:
        """Kill VMs with all their processes; None means all."""

    def forget(self, name: str) -> None:
        """Kill all VMs of a node, and delete their disks."""

    def update(self, node: types.Node) -> None:
        """Tell the VMs about the metadata of a node."""

    def guest_attributes(self, name: str) -> Sequence[Mapping[tuple[str, str], str]]:  # noqa: ARG002
        """Return the attributes of every worker, by namespace and key."""
        return []


class RealMachines(Machines):
    """All VMs of a server.

    Args:
        directory: directory for the files of the VMs.
        clock: the clock by which VMs boot.
        shared: directory of this machine that all VMs see at the same path.
    """

    def __init__(self, directory: Path, clock: Clock, shared: Path | None = None) -> None:
        _check_machine()
        self._directory = directory
        self._shared = shared
        self._clock = clock
        self._machines: dict[str, list[Machine]] = {}
        self._lock = threading.RLock()
        self._next_address = secrets.randbelow(2**21)
        self.port = self._free_port()
        directory.mkdir(parents=True, exist_ok=True)
        openssh.make_directory_of_sshd()
        openssh.make_key(directory / "any_host_key")
        self._common = openssh.common_options(directory / "any_host_key")

    def start(self, node: types.Node, seconds: float) -> Sequence[types.NetworkEndpoint]:
        has_external = node.network_config.enable_external_ips
        group = f"t1v-n-{secrets.token_hex(4)}-w"
        with self._lock:
            machines = [
                self._new(f"{group}-{worker}", has_external=has_external)
                for worker in range(CATALOG[node.accelerator_type].workers)
            ]
            self._machines[node.name] = machines
            self.update(node)
        if seconds > 0:
            self._clock.call_later(seconds, partial(self._boot, machines))
        else:
            self._boot(machines)
        return [_endpoint(machine.addresses) for machine in machines]

    def restart(self, node: types.Node) -> None:
        for machine in self.machines(node.name):
            machine.is_on = True
        self._boot(self.machines(node.name))

    def stop(self, name: str, workers: Iterable[int] | None = None) -> None:
        with self._lock:
            _kill(self._chosen(name, workers))

    def forget(self, name: str) -> None:
        with self._lock:
            machines = self._machines.pop(name, [])
            _kill(machines)
            for machine in machines:
                shutil.rmtree(machine.directory)

    def stop_all(self) -> None:
        """Kill all VMs."""
        for name in list(self._machines):
            self.forget(name)

    def break_worker(self, name: str, worker: int) -> None:
        """Let a VM accept connections and never answer."""
        machine = self._machines[name][worker]
        with self._lock:
            _kill([machine])
            machine.is_on = machine.is_broken = True
        self._boot([machine])

    def machines(self, name: str) -> Sequence[Machine]:
        """Return the VMs of a node in the order of their numbers."""
        return self._machines.get(name, [])

    def update(self, node: types.Node) -> None:
        keys = _ssh_keys(node.metadata.get("ssh-keys", ""))
        for machine in self._machines.get(node.name, []):
            _write_accounts(machine.directory, keys)
            script = machine.directory / "startup-script"
            script.write_text(node.metadata.get("startup-script", ""))
            if not script.stat().st_size:
                script.unlink()

    def guest_attributes(self, name: str) -> Sequence[Mapping[tuple[str, str], str]]:
        # Google's guest agent publishes the SSH host key.
        return [_host_key(machine) for machine in self._machines.get(name, [])]

    def _new(self, hostname: str, *, has_external: bool) -> Machine:
        """Make the files of a VM."""
        directory = self._directory / hostname
        for part in ("root", "home", "topgallant"):
            (directory / "disk" / part).mkdir(parents=True)
        (directory / "keys").mkdir()
        directory.chmod(0o755)  # sshd reads the keys with the rights of the user
        openssh.make_key(directory / "host_key")
        addresses = self._free_addresses()[: 2 if has_external else 1]
        listen = "".join(f"ListenAddress {address}:{self.port}\n" for address in addresses)
        (directory / "sshd_config").write_text(
            f"{listen}HostKey /run/vm/host_key\nAuthorizedKeysFile /run/vm/keys/%u\n{self._common}"
        )
        return Machine(directory, hostname, addresses)

    def _free_addresses(self) -> Sequence[str]:
        """Return the internal and the external address of a new VM, which no other process uses with this port."""
        while True:
            self._next_address = (self._next_address + 1) % 2**21
            high, low = divmod(self._next_address, 2**16)
            third, fourth = divmod(low, 2**8)
            found = [f"127.{network + high}.{third}.{fourth}" for network in (_INTERNAL_NETWORK, _EXTERNAL_NETWORK)]
            if fourth not in (0, 255) and all(_can_bind(address, self.port) for address in found):
                return found

    @staticmethod
    def _free_port() -> int:
        with socket.socket() as probe:
            probe.bind((f"127.{_EXTERNAL_NETWORK}.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    def _chosen(self, name: str, workers: Iterable[int] | None) -> Sequence[Machine]:
        machines = self.machines(name)
        return machines if workers is None else [machines[worker] for worker in workers]

    def _boot(self, machines: Sequence[Machine]) -> None:
        """Boot VMs, on the thread of the clock: the kernel ends the VMs when the thread that started them ends."""
        self._clock.run(partial(self._boot_here, machines))

    def _boot_here(self, machines: Sequence[Machine]) -> None:
        booting = []
        for machine in machines:
            with self._lock:
                if not machine.is_on or machine.process is not None or machine.silent:
                    continue  # it was stopped meanwhile, or runs
                if machine.is_broken:
                    machine.silent = [_silent(address, self.port) for address in machine.addresses]
                else:
                    _spawn(machine, self._shared)
                    booting.append(machine)
        for machine in booting:
            self._await(machine)

    def _await(self, machine: Machine) -> None:
        """Let a started VM boot, and wait until its SSH server listens, or until it is stopped."""
        process = machine.process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with suppress(BrokenPipeError), process.stdin, process.stdout:
            process.stdin.write(b"boot\n")
        deadline = time.monotonic() + _START_SECONDS
        log = machine.directory / "sshd.log"
        while process.poll() is None and time.monotonic() < deadline:
            if log.read_text().count("Server listening on") == len(machine.addresses):
                return
            time.sleep(_LOOK_SECONDS)
        with self._lock:
            if machine.process is process:  # otherwise it was stopped
                reason = (machine.directory / "boot.log").read_text() + log.read_text()
                _kill([machine])
                raise ServerError(f"the VM {machine.hostname} does not boot: {reason}")


def _check_machine() -> None:
    """Check that this machine can run VMs.

    Raises:
        ServerError: this machine cannot run VMs.
    """
    if missing := [name for name, path in openssh.TOOLS.items() if path is None]:
        raise ServerError(f"{', '.join(missing)} not found: install OpenSSH's server and client")
    if os.getuid() != 0:
        raise ServerError("the workers of the TPU server need root for their namespaces: run the tests as root")
    if missing := [name for name in ("setpriv", "unshare", "mount", "hostname") if shutil.which(name) is None]:
        raise ServerError(f"{', '.join(missing)} not found: install util-linux and hostname")
    _TOPGALLANT.mkdir(exist_ok=True)  # VMs mount their own over it


def _spawn(machine: Machine, shared: Path | None) -> None:
    """Start the process of a VM."""
    (machine.directory / "sshd.log").write_text("")
    arguments = [str(machine.directory), machine.hostname, str(openssh.TOOLS["sshd"]), str(shared or "")]
    command = ["setpriv", "--pdeathsig=KILL", "unshare", *_NAMESPACES, "sh", str(_BOOT), *arguments]
    with (machine.directory / "boot.log").open("ab") as log:
        machine.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )


def _kill(machines: Iterable[Machine]) -> None:
    """Kill VMs, and wait until all their processes have ended."""
    for machine in machines:
        process, machine.process, machine.is_on = machine.process, None, False
        for connection in machine.silent:
            connection.close()
        machine.silent = []
        if process is None:
            continue
        # With process 1, the kernel ends all others before the parent of process 1 sees its end.
        first = psutil.Process(process.pid).children()
        for one in first:
            one.kill()
        if not first:
            process.kill()
        process.wait()


def _silent(address: str, port: int) -> socket.socket:
    """Return a socket whose connections are established by the kernel, and never answered."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((address, port))
    found.listen(128)
    return found


def _can_bind(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def _endpoint(addresses: Sequence[str]) -> types.NetworkEndpoint:
    internal, *external = addresses
    endpoint = types.NetworkEndpoint(ip_address=internal, port=_TPU_PORT)
    if external:
        endpoint.access_config = types.AccessConfig(external_ip=external[0])
    return endpoint


def _host_key(machine: Machine) -> Mapping[tuple[str, str], str]:
    kind, key, *_ = (machine.directory / "host_key.pub").read_text().split()
    return {("hostkeys", kind): key}


def _ssh_keys(metadata: str) -> Mapping[str, Sequence[str]]:
    """Return the keys of each account in the metadata `ssh-keys`, whose lines are `USER:KEY`."""
    found: dict[str, list[str]] = {}
    for line in metadata.splitlines():
        user, _, key = line.strip().partition(":")
        if key and _ACCOUNT.fullmatch(user):
            found.setdefault(user, []).append(key)
    return found


def _write_accounts(directory: Path, keys: Mapping[str, Sequence[str]]) -> None:
    """Write the accounts of a VM: the accounts of this machine, and the accounts with keys."""
    lines = {name: Path("/etc", name).read_text() for name in ("passwd", "group", "shadow")}
    known = {line.split(":")[0] for line in lines["passwd"].splitlines()}
    for number, user in enumerate(sorted(set(keys) - known), _FIRST_UID):
        lines["passwd"] += f"{user}:x:{number}:{number}::/home/{user}:/bin/bash\n"
        lines["group"] += f"{user}:x:{number}:\n"
        lines["shadow"] += f"{user}:*:19000:0:99999:7:::\n"
        home = directory / "disk" / "home" / user
        home.mkdir(exist_ok=True)
        os.chown(home, number, number)
    for name, text in lines.items():
        (directory / name).write_text(text)
    for user, accepted in keys.items():
        (directory / "keys" / user).write_text("".join(f"{key}\n" for key in accepted))
    for file in (directory / "keys").iterdir():
        if file.name not in keys:
            file.unlink()
