"""The file that `sqlcache save` writes and `sqlcache load` reads.

    sqlcache saved 1\\n | records | digest

A record is `kind | node | ttl_s | bytes of the key | bytes of the value | key | value`. The first
is the header and the last the end, each with JSON as its value. The digest is of all before it: a
file that is not whole, or was changed, is refused before anything of it is used. It guards against
accidents, not against who can write the file.
"""

import fcntl
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self

from sqlcache.commands.replaced import replaced
from sqlcache.errors import ConfigError

HEADER, COPY, ITEM, END = b"H", b"C", b"I", b"E"
_MAGIC: Final = b"sqlcache saved 1\n"
_RECORD = struct.Struct("<cHIHI")
_DIGEST_BYTES: Final = 32
_PIECE_BYTES: Final = 1_048_576
_LONGEST_BYTES: Final = 1 << 30  # of a value: memcached's own limit


class Record(NamedTuple):
    """An item of a node; `ttl_s` is 0 where it lives without end. The key of a COPY is the schema
    whose tag's copy it is."""

    kind: bytes
    key: bytes
    value: bytes
    node: int = 0
    ttl_s: int = 0


class Writer:
    """Writes one, for its owner's eyes alone; it is there, whole, when `end` was called. To be used
    with `with`. Raises: ConfigError where it cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._replaced = replaced(path)
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._counts: dict[str, int] = {}
        with _faults(path):
            with suppress(OSError):  # as of a folder that may be written to and not be read
                _remove_left(self._replaced)
            made, self._part = _part_of(self._replaced)
            self._file = os.fdopen(made, "wb")
            self._put(_MAGIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        with suppress(OSError):  # it tries once more to write what it could not, as on a full disk
            self._file.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)

    def write(self, record: Record) -> None:
        """Adds a record."""
        kind, key, value, node, ttl_s = record
        head = _RECORD.pack(kind, node, ttl_s, len(key), len(value))
        with _faults(self.path):
            self._put(head + key + value)

    def say(self, kind: bytes, told: Mapping[str, Any]) -> None:
        """Adds the header, or the end."""
        self.write(Record(kind, b"", json.dumps(told).encode()))

    def end(self, told: Mapping[str, Any]) -> None:
        """Ends it; it takes the place of one that was there."""
        self.say(END, told)
        with _faults(self.path):
            self._file.write(self._digest.digest())
            self._file.flush()
            os.fsync(self._file.fileno())
            self._part.replace(self._replaced)


class SavedFile:
    """One to be read. Raises: ConfigError for what is none, or not whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _faults(path), path.open("rb") as file:
            self._verify(file)
            file.seek(len(_MAGIC))
            self.header: dict[str, Any] = json.loads(self._record(file).value)

    def _verify(self, file: BinaryIO) -> None:
        left = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ConfigError(f"{self._path}: none that this version of sqlcache has saved")
        digest.update(_MAGIC)
        left -= len(_MAGIC)
        while left > 0 and (piece := file.read(min(left, _PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
        if file.read() != digest.digest():
            raise ConfigError(f"{self._path}: is not as it was saved, or not whole")

    def records(self) -> Iterator[Record]:
        """What stands between header and end."""
        with _faults(self._path), self._path.open("rb") as file:
            file.seek(len(_MAGIC))
            self._record(file)
            while (record := self._record(file)).kind != END:
                yield record

    def _record(self, file: BinaryIO) -> Record:
        head = file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            raise ConfigError(f"{self._path}: ends before its end")
        kind, node, ttl_s, key_bytes, value_bytes = _RECORD.unpack(head)
        if value_bytes > _LONGEST_BYTES:
            raise ConfigError(f"{self._path}: has a value that is too long")
        return Record(kind, file.read(key_bytes), file.read(value_bytes), node, ttl_s)


def _part_of(file: Path) -> tuple[int, Path]:
    """What is written before it takes the file's place, of a name of its own: another may save
    there at the same time. It is locked as long as its writer lives, to tell that."""
    while True:
        made, part = mkstemp(".part", file.name + ".", file.parent)
        with suppress(OSError):  # of a file system that has no locks: it is never taken for left
            fcntl.flock(made, fcntl.LOCK_EX)
        if os.fstat(made).st_nlink:
            return made, Path(part)
        os.close(made)  # it was removed before it was locked


def _remove_left(file: Path) -> None:
    """Removes the parts of those that were killed while they saved there."""
    name = re.compile(re.escape(file.name) + r"\.[a-z0-9_]{8}\.part")
    for part in file.parent.iterdir():
        if name.fullmatch(part.name) and part.is_file():
            with suppress(OSError):  # in use, or somebody else's
                left = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                with open(left, "rb") as locked:
                    fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    part.unlink()


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Says which file is at fault."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
