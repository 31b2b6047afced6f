"""Opens the store, the database of all runs: SQLite in a file, or PostgreSQL behind a URL.

Opening a store migrates its tables to the current version. Writers take turns, so that two runs that end together do
not fail on a database lock. `results import` can rebuild a lost store from the journals of the runs.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final, Self

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, inspect, make_url, text

from toolbox.ground.model.errors import InfrastructureError, UsageError
from toolbox.ground.system import environ, extras, filesystem
from toolbox.records.results import migrations

_VERSIONS: Final = Path(migrations.__file__).parent / "versions"
_WAIT_SECONDS: Final = 30  # the time that a writer waits for another writer; the run can be imported later
_CONNECT_SECONDS: Final = 10
_PRIMARY_CODE: Final = 0xFF  # the bits of SQLite's error codes that tell the kind of error
_REFUSED: Final = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_LOCK: Final = 0x7097A11A  # key of the writers' advisory lock in PostgreSQL, an arbitrary number


class StoreError(InfrastructureError):
    """The store cannot be opened, read or written."""


class Store:
    """An open store.

    Args:
        location: the path of a file, or a URL of PostgreSQL.
        may_create: whether to create the store if it does not exist.

    Raises:
        StoreError: the store cannot be opened, or a newer version of Topgallant created it.
        UsageError: the location is not valid.
    """

    def __init__(self, location: str, *, may_create: bool = True) -> None:
        url = _url(location)
        self.location = url.render_as_string(hide_password=True) if url.host or "://" in location else location
        self._file = Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None
        try:
            self._engine = _engine(url)
            if not may_create and self._file is not None and not self._file.exists():
                raise UsageError(
                    f"the store {self.location} does not exist: `{environ.program()} results import` creates it"
                )
            self._bring_up_to_date()
        except OSError as error:
            raise StoreError(f"the store {self.location} cannot be opened: {error.strerror or error}") from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees a snapshot of the store, taken at its first query."""
        readers = self._engine if self._file else self._engine.execution_options(isolation_level="REPEATABLE READ")
        with self._explained(), readers.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection with exclusive write access. Its changes are committed at the end of the block."""
        writers = self._engine.execution_options(writes=True)
        with self._explained(), writers.begin() as connection:
            if self._file is None:
                connection.execute(text(f"SET LOCAL lock_timeout = '{_WAIT_SECONDS}s'"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            yield connection

    def close(self) -> None:
        """Close the store."""
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
        # Only one process at a time may change the mode of an SQLite file.
        alone = _locked(self._file) if self._file is not None else nullcontext()
        with alone, self.writing() as connection:
            if not self._is_current(connection):
                _migrate(connection)

    def _is_up_to_date(self) -> bool:
        if self._file is not None and not self._file.exists():
            return False
        with self.reading() as connection:
            return self._is_current(connection)

    def _is_current(self, connection: Connection) -> bool:
        """Return whether the tables have the current version.

        Raises:
            StoreError: a newer version created the tables, or the database belongs to another program.
        """
        version, versions = _version_of(connection), _versions()
        newest = max(versions)
        if version is not None and version not in versions:
            raise StoreError(
                f"the store {self.location} was created by a newer version of Topgallant, or by one before 0.2.0: "
                f"its tables have version {version}, not {newest}. Use that version, or another store (--database)"
            )
        if version is None and (tables := inspect(connection).get_table_names()):
            raise StoreError(f"the store {self.location} is the database of another program: it has {tables[0]}")
        return version == newest

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (exc.DBAPIError, sqlite3.Error) as error:  # `set_up` raises sqlite3.Error, outside of SQLAlchemy
            reason = _reason(getattr(error, "orig", error), self._file)
            raise StoreError(f"the store {self.location}: {reason}") from error


def _url(location: str) -> URL:
    if "://" not in location:
        return URL.create("sqlite", database=str(environ.expanded(location).absolute()))
    try:
        url = make_url(location)
    except (exc.ArgumentError, ValueError):
        raise UsageError("the store: the URL cannot be read: write a URL such as postgresql://user@host/name") from None
    if "@" in (url.host or ""):  # the password contains an @, at which SQLAlchemy has split the URL
        raise UsageError("the store: write an @ in the password of a URL as %40") from None
    match url.drivername.partition("+")[0]:
        case "postgresql" | "postgres":
            extras.require(extras.POSTGRES, "a store in PostgreSQL")
            return url.set(drivername="postgresql+psycopg")
        case "sqlite" if url.database:
            return url.set(drivername="sqlite", database=str(environ.expanded(url.database).absolute()))
        case other:
            raise UsageError(f"the store: {other} is not supported: use a file, or postgresql://user@host/name")


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, connect_args={"connect_timeout": _CONNECT_SECONDS}, poolclass=NullPool)
    engine = create_engine(_sqlite_url(Path(url.database or "")), poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _record: object) -> None:
        # The driver must not begin transactions, because `begin` does that, with `IMMEDIATE` for writers.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _sqlite_url(file: Path) -> URL:
    """Return the URL with which to open a file. In a read-only directory, the file is opened read-only.

    Even for readers, SQLite creates a write-ahead log beside a store. It cannot do so in a read-only directory. If the
    log is missing or empty, no process is writing to the store, and the store can be opened as immutable.
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
    """Hold the lock beside an SQLite file, and set WAL mode, in which readers do not wait for a writer."""
    try:
        descriptor = filesystem.open_lock(Path(f"{file}.lock"))
    except OSError as error:
        raise StoreError(f"the store {file}: its lock {file}.lock cannot be opened: {error.strerror}") from error
    with os.fdopen(descriptor, "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with closing(sqlite3.connect(file, timeout=_WAIT_SECONDS)) as connection:
                file.chmod(filesystem.PRIVATE_FILE)
                connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise StoreError(f"the store {file}: {_reason(error, file)}") from error
        yield


def _versions() -> set[str]:
    """Return the versions of the tables that this version of Topgallant can migrate."""
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
    """Return the write-ahead log beside a store, with changes that SQLite has not yet moved into the store."""
    return file.with_name(f"{file.name}-wal")


def _reason(error: BaseException | None, file: Path | None) -> str:
    """Return the error message of a database on one line, with a hint on what to do."""
    message = " ".join(str(error).split())
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & _PRIMARY_CODE
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return f"{message}: move the file away; `{environ.program()} results import RUN_DIR...` creates it again"
    if code in _REFUSED and file is not None and _wal(file).exists():
        return f"{message}: {_wal(file).name} remains; open the store once as a user who may write both files"
    return message
