"""The command line: finds the command, lets Fire parse the flags, calls the command, and returns the exit code.

Only the module of the requested group is imported. An expected error becomes one message on stderr. Any other exception
is reported as an internal error.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolbox.ground.interface import helptext, registry, signature
from toolbox.ground.interface.registry import Command
from toolbox.ground.kit import streams
from toolbox.ground.model.errors import Cancelled, ToolboxError, UsageError, exit_code_of, outcome_of
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.verdicts import Cause, ExitCode
from toolbox.ground.system import environ, places, redaction, signals
from toolbox.ground.system.redaction import Redactor

log = logging.getLogger("toolbox")

_HELP: Final = {"--help", "-h", "help"}
_DEBUG: Final = "--debug"
_END_OF_FLAGS: Final = "--"  # all words after it are arguments of a command such as `tpu run`


@dataclass(frozen=True, slots=True)
class Context:
    """The settings of one command line.

    Args:
        redactor: masks secrets in all output of this process.
    """

    redactor: Redactor = field(default_factory=Redactor)
    debug: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code. After the third signal, end the process at once."""
    code = _main(argv)
    if signals.cleanup_has_ended():
        # When the interpreter ends, it waits for all worker threads, and a thread may wait for a remote system.
        _flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _main(argv: Sequence[str] | None) -> int:
    words, verbatim = _split(list(sys.argv[1:] if argv is None else argv))
    context = Context(debug=_DEBUG in words)
    _open_streams()
    words = [*(word for word in words if word != _DEBUG), *verbatim]
    _set_up_output(context)
    redaction.use(context.redactor)
    signals.install()
    try:
        with places.pinned(places.workspace()):
            code = _run(words, context)
        _flush()
    except BrokenPipeError:
        _flush()
        return ExitCode.PASSED
    except (ToolboxError, Cancelled) as error:
        trace = f"{traceback.format_exc()}\n" if context.debug else ""
        print(printable(context.redactor(f"{trace}error: {error}")), file=sys.stderr)
        return exit_code_of(error)
    except Exception as error:  # noqa: BLE001  # every unexpected error is reported here
        trace = traceback.format_exc() if context.debug else "run the command again with --debug for the traceback"
        is_internal = outcome_of(error)[1] is Cause.INTERNAL
        message = f"{'internal error' if is_internal else 'error'}: {type(error).__name__}: {error}\n{trace}"
        print(printable(context.redactor(message)), file=sys.stderr)
        return ExitCode.ERROR
    return code


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before the first `--`, and the words from there on, which are not flags of Topgallant."""
    index = words.index(_END_OF_FLAGS) if _END_OF_FLAGS in words else len(words)
    return words[:index], words[index:]


def _flush() -> None:
    """Flush stdout, even if its reader has ended.

    If stdout were not flushed here, Python would flush it at exit, print an error about the broken pipe, and exit with
    status 120.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str], context: Context) -> int:
    if not words or words[0] in _HELP:
        print(helptext.of_groups(registry.summaries()))
        return ExitCode.PASSED
    if words[0] == "--version":
        from importlib import metadata  # slow to import

        print(f"topgallant {metadata.version('topgallant')}")
        return ExitCode.PASSED
    if words[0].startswith("-"):
        raise UsageError(f"the group is missing before {words[0]}: `{environ.program()}` lists the groups")
    group = registry.group(words[0].replace("-", "_"))
    rest = words[1:]
    if group.is_command:
        command = group.commands[group.name]
    else:
        if not rest or rest[0] in _HELP:
            print(helptext.of_group(group))
            return ExitCode.PASSED
        command = registry.command(group.name, rest[0].replace("-", "_"))
        rest = rest[1:]
    if _asks_for_help(rest):
        print(helptext.of_command(command))
        return ExitCode.PASSED
    return _call(command, _read_flags(command, rest), context)


def _asks_for_help(words: list[str]) -> bool:
    return any(word in {"--help", "-h"} for word in _split(words)[0])


def _read_flags(command: Command, words: list[str]) -> dict[str, Any]:
    """Let Fire parse the flags as texts, and convert the texts to the types of the parameters."""
    import fire

    arguments: dict[str, Any] = {}
    parameters = command.signature.parameters
    positional = [parameter.name for parameter in parameters if parameter.positional]
    variadic = next((parameter.name for parameter in parameters if parameter.variadic), None)

    # The function accepts unknown flags, so that `signature.bind` can name all faults at once.
    @fire.decorators.SetParseFn(str)  # type: ignore[untyped-decorator]
    def collect(*args: Any, **flags: Any) -> None:
        if variadic is not None and args:
            first = len(positional) - 1
            args = (*args[:first], list(args[first:])) if len(args) > first else args
        if len(args) > len(positional):
            raise UsageError(f"{command.signature.name}: unexpected argument {args[len(positional)]!r}")
        by_position = dict(zip(positional, args, strict=False))
        if twice := sorted(by_position.keys() & flags.keys()):
            raise UsageError(f"{command.signature.name}: --{twice[0]} is given twice")
        arguments.update(by_position | flags)

    words, verbatim = _split(words)
    # In Fire, a lone `-` ends a call, and `--` begins Fire's own flags.
    if "-" in words or (verbatim and variadic is None):
        raise UsageError(f"{command.signature.name}: unexpected argument `-`: flags are written --name=value")
    fire.Fire(collect, command=_with_equals_signs(words, command), name=command.signature.name)
    if variadic is not None and len(verbatim) > 1:
        arguments[variadic] = [*arguments.get(variadic, []), *verbatim[1:]]
    return signature.bind(command.signature, arguments, text=True)


def _with_equals_signs(words: list[str], command: Command) -> list[str]:
    """Return the words with `--name value` written as `--name=value`, and `--noname` as `--name=False`."""
    kinds = {
        parameter.name: signature.members(parameter.annotation) - {type(None)}
        for parameter in command.signature.parameters
    }
    flags = {name: members == {bool} for name, members in kinds.items()}
    joined: list[str] = []
    seen: set[str] = set()
    index = 0
    while index < len(words):
        word, index = words[index], index + 1
        if not word.startswith("--"):
            joined.append(word)
            continue
        name, equals, _ = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        meant = name[2:] if name.startswith("no") and flags.get(name[2:]) and name not in flags else name
        if meant in seen:
            raise UsageError(f"{command.signature.name}: --{meant} is given twice: a list is written --{meant}=a,b")
        seen.add(meant)
        if equals:
            joined.append(f"--{name}={word.partition('=')[2]}")
        elif meant != name:
            joined.append(f"--{meant}=False")
        elif flags.get(name) or index == len(words) or words[index].startswith("--"):
            if name in kinds and bool not in kinds[name]:
                raise UsageError(f"{command.signature.name}: --{name} needs a value: --{name}=...")
            joined.append(f"--{name}=True")
        else:
            joined.append(f"--{name}={words[index]}")
            index += 1
    return joined


def _call(command: Command, values: dict[str, Any], context: Context) -> int:
    from toolbox.cli import invocation

    return invocation.invoke(command, values, context.redactor)


def _open_streams() -> None:
    """Open the standard streams that the caller has closed, so that no other file takes the number of one of them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  # open until the end
            os.set_inheritable(getattr(sys, name).fileno(), True)  # for programs that this process starts


def _set_up_output(context: Context) -> None:
    streams.print_escapes()
    threading.excepthook = lambda args: log.error(
        "a thread ended with %s", "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Redacted(context.redactor))
    handler.addFilter(_Repeated())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if context.debug else logging.INFO)
    for library in ("alembic", "asyncio", "ansible-runner", "urllib3"):
        logging.getLogger(library).setLevel(logging.WARNING)


class _Repeated(logging.Filter):
    """Drops a record that is marked with `toolbox.config.document.ONCE` and was already printed."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to print the record."""
        if not getattr(record, "once", False):
            return True
        message = record.getMessage()
        is_new = message not in self._printed
        self._printed.add(message)
        return is_new


class _Redacted(logging.Formatter):
    """Formats a line of the log, masks secrets, and escapes terminal control sequences."""

    def __init__(self, redactor: Callable[[str], str]) -> None:
        super().__init__("%(levelname)s: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of the line."""
        record.levelname = record.levelname.lower()
        return printable(self._redactor(super().format(record)))
