"""The store: one database of all runs, SQLite in a file or PostgreSQL behind a URL. The only module that opens it.

It can be lost: `results import` makes it again from the journals of the runs. There is one writer at a time, so that
two runs that end together neither meet nor wait for a lock in vain. Who opens a store brings its tables up to date.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, Self

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, inspect, make_url, text

from toolbox.model.errors import InfrastructureError, UsageError
from toolbox.results import migrations
from toolbox.system import environ, extras, filesystem

NAME: Final = "results.sqlite"
_VERSIONS: Final = Path(migrations.__file__).parent / "versions"
_WAIT_SECONDS: Final = 30  # for who writes: a run that has ended does not wait longer, and is imported later
_CONNECT_SECONDS: Final = 10
_PRIMARY_CODE: Final = 0xFF  # the other bits of a code of SQLite tell details
_REFUSED: Final = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_LOCK: Final = 0x7097A11A  # of PostgreSQL, held by who writes: any number that nobody else takes


class StoreError(InfrastructureError):
    """The store cannot be opened, read or written."""


def default_location() -> str:
    """Return where the store is when nobody says: what the environment names, or a file of this user's."""
    named = environ.get(environ.RESULTS_DATABASE)
    return named or str(environ.state_directory() / NAME)


class Store:
    """An open store.

    Args:
        location: the path of a file, or a URL of PostgreSQL.
        is_new: whether it may be made where there is none.

    Raises:
        StoreError: it cannot be opened, or is of a newer version than this program.
        UsageError: the location is none.
    """

    def __init__(self, location: str, *, is_new: bool = True) -> None:
        url = _url(location)
        self.location = url.render_as_string(hide_password=True) if url.host or "://" in location else location
        self._file = Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None
        try:
            self._engine = _engine(url)
            if not is_new and self._file is not None and not self._file.exists():
                raise UsageError(f"there is no store {self.location}: `{environ.program()} results import` makes one")
            self._bring_up_to_date()
        except OSError as error:
            raise StoreError(f"the store {self.location}: {error.strerror or error}") from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees the store as it is at its first question."""
        readers = self._engine if self._file else self._engine.execution_options(isolation_level="REPEATABLE READ")
        with self._explained(), readers.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection that alone may write. What it wrote counts when the block ends, all of it or nothing."""
        writers = self._engine.execution_options(writes=True)
        with self._explained(), writers.begin() as connection:
            if self._file is None:
                connection.execute(text(f"SET LOCAL lock_timeout = '{_WAIT_SECONDS}s'"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            yield connection

    def close(self) -> None:
        """Let go of it."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bring_up_to_date(self) -> None:
        if self._file is not None:
            filesystem.make_directory(self._file.parent)
        if self._is_up_to_date():
            return
        with self._alone(), self.writing() as connection:
            if not self._is_current(connection):
                _migrate(connection)

    def _is_up_to_date(self) -> bool:
        if self._file is not None and not self._file.exists():
            return False
        with self.reading() as connection:
            return self._is_current(connection)

    def _is_current(self, connection: Connection) -> bool:
        """Tell whether the tables are those of this program. Nothing is changed in a database that is none of ours."""
        version, known = _version_of(connection), _versions()
        newest = max(known)
        if version is not None and version not in known:
            age = "a newer" if version > newest else "an unknown"
            raise StoreError(
                f"the store {self.location} is of {age} version of this program ({version}, this one knows "
                f"{newest}): use that version, or another store (--database)"
            )
        if version is None and (tables := inspect(connection).get_table_names()):
            raise StoreError(f"the store {self.location} is the database of another program: it has {tables[0]}")
        return version == newest

    def _alone(self) -> AbstractContextManager[None]:
        """Keep others from setting up the same file: SQLite cannot have its mode changed by two at once."""
        return _locked(self._file) if self._file is not None else _nothing()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except exc.DBAPIError as error:
            raise StoreError(f"the store {self.location}: {_reason(error.orig, self._file)}") from error
        except sqlite3.Error as error:  # while a connection is set up
            raise StoreError(f"the store {self.location}: {_reason(error, self._file)}") from error


def _url(location: str) -> URL:
    if "://" not in location:
        return URL.create("sqlite", database=str(environ.expanded(location).absolute()))
    try:
        url = make_url(location)
    except (exc.ArgumentError, ValueError):
        raise UsageError("the store: the URL of a database was expected, postgresql://user@host/name") from None
    if "@" in (url.host or ""):  # what stands before it is a part of the password
        raise UsageError("the store: an @ in the password of a URL is written %40") from None
    match url.drivername.partition("+")[0]:
        case "postgresql" | "postgres":
            extras.require("postgres", "a store in PostgreSQL")
            return url.set(drivername="postgresql+psycopg")
        case "sqlite" if url.database:
            return url.set(drivername="sqlite", database=str(environ.expanded(url.database).absolute()))
        case other:
            raise UsageError(f"the store: {other} is not supported: a file, or postgresql://user@host/name")


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, connect_args={"connect_timeout": _CONNECT_SECONDS}, poolclass=NullPool)
    engine = create_engine(_sqlite_url(Path(url.database or "")), poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _record: object) -> None:
        # SQLAlchemy begins transactions here, not the driver: a writer has to say so when it begins.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _sqlite_url(file: Path) -> URL:
    """Return how a file is opened. Where nobody may write beside it, it is read as it stands.

    To read a store in WAL mode, SQLite creates a file beside the store. Without that file no process has the store
    open. A process that opened the store to read it may have left an empty one.
    """
    query = {"timeout": str(_WAIT_SECONDS)}
    if file.exists() and not os.access(file.parent, os.W_OK):
        query |= {"mode": "ro", "uri": "true"}
        if filesystem.size(_wal(file)) == 0:
            query["immutable"] = "1"
        return URL.create("sqlite", database=file.as_uri(), query=query)
    return URL.create("sqlite", database=str(file), query=query)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock beside a file of SQLite, and have it in the mode in which readers do not wait for a writer."""
    try:
        descriptor = filesystem.open_lock(Path(f"{file}.lock"))
    except OSError as error:
        raise StoreError(f"the store {file}: its lock {file}.lock: {error.strerror}") from error
    with os.fdopen(descriptor, "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with closing(sqlite3.connect(file, timeout=_WAIT_SECONDS)) as connection:
                file.chmod(filesystem.PRIVATE_FILE)
                connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise StoreError(f"the store {file}: {_reason(error, file)}") from error
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _versions() -> set[str]:
    """Return the versions of the tables that this program can bring up to date."""
    return {file.name.partition("_")[0] for file in _VERSIONS.glob("[0-9]*.py")}


def _version_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_VERSIONS.parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")


def _wal(file: Path) -> Path:
    """Return the file beside a store that holds what its last writers wrote, until SQLite moves that into the store."""
    return file.with_name(f"{file.name}-wal")


def _reason(error: BaseException | None, file: Path | None) -> str:
    """Return what a database says, on one line, and what to do about it."""
    said = " ".join(str(error).split())
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & _PRIMARY_CODE
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return f"{said}: move it away, and `{environ.program()} results import RUN_DIR...` makes it again"
    if code in _REFUSED and file is not None and _wal(file).exists():
        return f"{said}: {_wal(file).name} was left beside it; open the store once as a user who may write both"
    return said
