"""The server of modules executes payloads as a new interpreter executes them. The payloads here contain small parts."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Final, NamedTuple

import pytest

from toolbox.ground.kit import process_tree
from toolbox.ground.system.fork_connections import Connection, Refused
from toolbox.ground.system.fork_servers import ForkServer
from toolbox.targets.agent import module_server

ENV: Final = {"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8"}
PARTS: Final = {
    "ansible/__init__.py": "",
    "ansible/module_utils/__init__.py": "",
    "ansible/module_utils/basic.py": """
        import os, pathlib
        from ansible.module_utils.helper import help
        PID = os.getpid()
        PLACE = pathlib.Path(__file__).parent
    """,
    "ansible/module_utils/helper.py": """
        import sys
        VALUE = []
        def help():
            VALUE.append(1)
            return sys._getframe().f_code.co_filename
    """,
}
# As the program of ansible-core does: unpack the ZIP file, put it into the search path, and execute a module.
PROGRAM: Final = """
import os, shutil, sys, tempfile
directory = tempfile.mkdtemp()
archive = os.path.join(directory, "module_payload.zip")
try:
    with open(archive, "wb") as stream:
        stream.write({content!r})
    sys.path.insert(0, archive)
    {source}
finally:
    shutil.rmtree(directory)
"""
LOOK: Final = """
    from ansible.module_utils import basic, helper
    assert basic.help() == os.path.join(archive, "ansible/module_utils/helper.py"), basic.help()
    assert str(basic.PLACE) == os.path.join(archive, "ansible/module_utils"), basic.PLACE
    assert basic.__file__ == basic.__spec__.origin == os.path.join(archive, "ansible/module_utils/basic.py")
    assert basic.__loader__.archive == archive
    print("own" if basic.PID == os.getpid() else "preloaded", helper.VALUE)
"""


class Ended(NamedTuple):
    """A payload that has ended."""

    status: int
    stdout: bytes
    stderr: bytes


class Modules:
    """A running server of modules."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        args = [sys.executable, str(module_server.__file__), process_tree.MARK, str(directory), "difflib"]
        self.server = ForkServer(args, ENV, directory)
        stack.callback(self.server.close)
        self.server.launch()

    def execute(
        self,
        payload: str,
        env: Mapping[str, str] = ENV,
        interpreter: str = sys.executable,
        *,
        has_core_library: bool = True,
    ) -> Ended:
        """Execute a payload."""
        contents: dict[str, bytes] = {}

        def read(name: str, stream: IO[bytes]) -> None:
            with stream:
                contents[name] = stream.read()

        message = {
            "interpreter": interpreter,
            "env": dict(env),
            "cwd": str(self.directory),
            "has_core_library": has_core_library,
        }
        with ExitStack() as stack:
            nothing = stack.enter_context(Path(os.devnull).open("rb"))
            pipes = {name: os.pipe() for name in ("stdout", "stderr")}
            streams = {name: os.fdopen(read_end, "rb") for name, (read_end, _) in pipes.items()}
            threads = [threading.Thread(target=read, args=item) for item in streams.items()]
            for thread in threads:
                thread.start()
                stack.callback(thread.join)
            with ExitStack() as ends:
                writers = [ends.enter_context(os.fdopen(write_end, "wb")) for _, write_end in pipes.values()]
                descriptors = [stream.fileno() for stream in (nothing, *writers)]
                connection = Connection(self.server.path, message, payload.encode(), descriptors)
            with closing(connection):
                status = connection.status()
        assert status is not None
        return Ended(status, contents["stdout"], contents["stderr"])

    def look(self, changes: Mapping[str, str] | None = None) -> str:
        """Execute a module that imports parts, and return what it prints."""
        ended = self.execute(program(LOOK, {**PARTS, **(changes or {})}))
        assert (ended.status, ended.stderr) == (0, b"")
        return ended.stdout.decode().strip()


def program(source: str, parts: Mapping[str, str]) -> str:
    """Return a payload that contains the parts of `ansible`, and that executes a source."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, "\n".join(line.removeprefix(" " * 8) for line in text.splitlines()))
    return PROGRAM.format(content=content.getvalue(), source=source.strip())


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Modules]:
    with ExitStack() as stack:
        yield Modules(tmp_path, stack)


def test_the_parts_of_the_first_payload_are_imported_once(modules: Modules) -> None:
    assert [modules.look() for _ in range(3)] == ["own [1]", "preloaded [1]", "preloaded [1]"]
    assert sorted(path.name for path in modules.directory.iterdir()) == ["messages.log", "payload.zip", "requests.sock"]
    assert modules.server.messages() == ""


@pytest.mark.parametrize("part", ["basic", "helper"])
def test_a_payload_with_other_parts_imports_its_own(modules: Modules, part: str) -> None:
    name = f"ansible/module_utils/{part}.py"
    other = PARTS[name] + "        # another version\n"
    assert [modules.look(), modules.look({name: other}), modules.look()] == ["own [1]", "own [1]", "preloaded [1]"]


def test_a_payload_with_more_parts_uses_those_of_the_server(modules: Modules) -> None:
    assert modules.look() == "own [1]"
    more = {"ansible/module_utils/more.py": "from ansible.module_utils.helper import VALUE\n"}
    source = LOOK + "    from ansible.module_utils import more; assert more.VALUE is helper.VALUE\n"
    source += "    assert more.__file__ == os.path.join(archive, 'ansible/module_utils/more.py')\n"
    assert modules.execute(program(source, {**PARTS, **more})) == (0, b"preloaded [1]\n", b"")


def test_parts_that_cannot_be_imported_leave_the_server_as_it_was(modules: Modules) -> None:
    broken = "import os\n        if sys.argv == ['']: pass\n        raise OSError('broken')\n"
    parts = {**PARTS, "ansible/module_utils/helper.py": broken}
    for _ in range(2):
        ended = modules.execute(program(LOOK, parts))
        assert ended.status != 0
        assert b"NameError" in ended.stderr
    assert modules.look() == "own [1]"


def test_a_part_may_put_another_module_in_its_own_place(modules: Modules) -> None:
    """The part `distro` of ansible-core does so if the host has no package `distro`."""
    changes = {
        "ansible/module_utils/basic.py": PARTS["ansible/module_utils/basic.py"] + "    from . import distro\n",
        "ansible/module_utils/distro/__init__.py": """
        import sys
        from ansible.module_utils.distro import _distro
        sys.modules[__name__] = _distro
        """,
        "ansible/module_utils/distro/_distro.py": "ID = 'debian'",
    }
    assert [modules.look(changes) for _ in range(3)] == ["own [1]", "preloaded [1]", "preloaded [1]"]
    look = f"{LOOK.rstrip()}\n    from ansible.module_utils import distro\n    print(distro.ID, distro.__name__)\n"
    ended = modules.execute(program(look, {**PARTS, **changes}))
    assert ended.stdout == b"preloaded [1]\ndebian ansible.module_utils.distro._distro\n", ended


@pytest.mark.parametrize("name", ["basic", "helper"])
def test_a_part_that_ends_the_interpreter_does_not_end_the_server(modules: Modules, name: str) -> None:
    path = f"ansible/module_utils/{name}.py"
    ends = f"""import sys
        if __file__.startswith({str(modules.directory)!r}):
            print("printed")
            sys.exit("end")
        {PARTS[path]}"""
    assert [modules.look({path: ends}) for _ in range(2)] == ["own [1]"] * 2
    assert "SystemExit: end" in modules.server.messages()
    assert modules.execute("print('only this')").stdout == b"only this\n"


def test_the_server_does_not_import_the_parts_of_a_role(modules: Modules) -> None:
    for _ in range(2):
        assert modules.execute(program(LOOK, PARTS), has_core_library=False).stdout == b"own [1]\n"
    assert [modules.look() for _ in range(2)] == ["own [1]", "preloaded [1]"]
    assert modules.execute(program(LOOK, PARTS), has_core_library=False).stdout == b"preloaded [1]\n"


def test_a_payload_that_cannot_be_saved_is_executed(modules: Modules) -> None:
    (modules.directory / "payload.zip").mkdir()
    (modules.directory / "difflib").mkdir()
    assert [modules.look() for _ in range(2)] == ["own [1]"] * 2
    assert modules.execute("import difflib") == (0, b"", b"")
    assert not list(modules.directory.glob("payload.zip.*"))


def test_a_payload_without_a_zip_file_can_import_ansible(modules: Modules) -> None:
    (modules.directory / "ansible.py").write_text("print('imported')")
    assert modules.execute("import ansible") == (0, b"imported\n", b"")


@pytest.mark.parametrize(
    "source",
    [
        "print(__name__, __file__, __loader__, __package__, __spec__, __doc__, __builtins__)",
        "print(sys.argv, sys.path, sys.flags, sys.stdin.read(), vars(sys.modules['__main__']) is globals())",
        "sys.exit('the end')",
        "sys.exit(3)",
        "os.write(1, b'raw'); os._exit(7)",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 15)",
        "sys.stdout.buffer.write(bytes(range(256)))",
        "1 +",
        "def f(): raise ValueError('é')\nf()",
        "try: 1 / 0\nexcept ArithmeticError: raise KeyError",
        "import atexit; atexit.register(print, 'at the end'); raise KeyboardInterrupt",
        "os.close(1); os.close(2)",
        "sys.excepthook = lambda *error: print(error[0]); raise OSError",
        "import threading; threading.Thread(target=print, args=['thread']).start()",
    ],
)
def test_a_payload_ends_as_in_a_new_interpreter(modules: Modules, source: str) -> None:
    payload = f"import os, sys\n{source}\n"
    new = subprocess.run([sys.executable], input=payload.encode(), capture_output=True, env=ENV, check=False)
    ended = modules.execute(payload)
    assert (os.waitstatus_to_exitcode(ended.status), ended.stdout, ended.stderr) == (
        new.returncode,
        new.stdout,
        new.stderr,
    )


def test_a_large_output_arrives(modules: Modules) -> None:
    size = 50 << 20
    ended = modules.execute(f"import sys; sys.stdout.write('x' * {size}); sys.stderr.write('y' * {size >> 4})")
    assert (ended.status, len(ended.stdout), len(ended.stderr)) == (0, size, size >> 4)
    assert {ended.stdout[:1], ended.stdout[-1:]} == {b"x"}


@pytest.mark.parametrize("change", [{"PYTHONHASHSEED": "1"}, {"LANG": "C"}, {"HOME": "/root"}, {"LD_PRELOAD": ""}])
def test_another_start_of_the_interpreter_is_refused(modules: Modules, change: dict[str, str]) -> None:
    (name,) = change
    with pytest.raises(Refused, match=f"another value of {name}"):
        modules.execute("print()", {**ENV, **change})


def test_another_interpreter_is_refused(modules: Modules) -> None:
    with pytest.raises(Refused, match="the interpreter is"):
        modules.execute("print()", interpreter="/usr/bin/python3")


def test_other_variables_are_those_of_the_request(modules: Modules) -> None:
    ended = modules.execute("import os; print(dict(os.environ))", {**ENV, "GREETING": "hello"})
    assert ended == (0, f"{ {**ENV, 'GREETING': 'hello'} }\n".encode(), b"")


def test_a_module_that_is_named_is_imported_after_its_first_use(modules: Modules) -> None:
    source = "import sys; print('difflib' in sys.modules); import difflib"
    assert [modules.execute(source).stdout for _ in range(2)] == [b"False\n", b"True\n"]
