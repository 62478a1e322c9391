"""What the log's events say was changed, gathered until it became visible; no I/O, no clock.

Laws:

- What a transaction changed is told at its end, all of it; what MySQL does not hold back, at once.
  Rows that a branch of XA prepared are told when that is committed, by whomever. Of its statements
  nobody knows what they did if something was defined since: in MariaDB what they use is locked only
  as long as the session lives that has prepared them.
- What an event says and is not understood is told as a change of everything. An event that nobody
  knows is passed over only where the server marks it as one that may be.
- Statements are told by one of each shape, and no more of them than `MOST_STATEMENTS` of a
  transaction: what a text writes, its literals do not decide. Behind one that may define something
  of each shape once more: names may mean something else there.
"""

import re
import struct
import uuid
import zlib
from collections.abc import Callable
from typing import Final

from sqlcache.binlog.change import MOST_TABLES, MOST_TEXT_BYTES, Change, Commit, Logged, Place
from sqlcache.binlog.events import (
    DELETIONS,
    EVENT_HEADER_BYTES,
    INSERTS,
    ROWS,
    TABLE_ID_BYTES,
    Event,
    Kind,
)
from sqlcache.binlog.session_settings import settings
from sqlcache.errors import ProtocolError, SqlSyntaxError
from sqlcache.mysql.packets import read_lenenc
from sqlcache.sql.charset import UTF8, of_collation, to_utf8
from sqlcache.sql.lexer import lex
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import ADDS, DELETES, Changes

_LONG_BYTES: Final = 8_192  # of an event with a text
_MOST_PREPARED: Final = 10_000
_MOST_PREPARED_BYTES: Final = 16_777_216

_UPDATES: Final = Changes(None)
_ARTIFICIAL, _IGNORABLE = 0x20, 0x80
_MARIADB_STANDALONE: Final = 0x01
_NO_TABLE: Final = b"\xff\xff\xff\0\0\0"
"""The number of none, by which a statement ends that changed no row."""
_PASSED_OVER: Final = frozenset(
    {
        Kind.START_V3,
        Kind.STOP,
        Kind.INTVAR,
        Kind.RAND,
        Kind.USER_VAR,
        Kind.APPEND_BLOCK,
        Kind.DELETE_FILE,
        Kind.BEGIN_LOAD_QUERY,
        Kind.HEARTBEAT,
        Kind.HEARTBEAT_V2,
        Kind.IGNORABLE,
        Kind.ROWS_QUERY,
        Kind.PREVIOUS_GTIDS,
        Kind.TRANSACTION_CONTEXT,
        Kind.VIEW_CHANGE,
        Kind.FORMAT_DESCRIPTION,
        Kind.MARIADB_ANNOTATE_ROWS,
        Kind.MARIADB_CHECKPOINT,
        Kind.MARIADB_GTID_LIST,
        Kind.MARIADB_START_ENCRYPTION,
    }
)
_IN_NO_FILE: Final = frozenset({Kind.ROTATE, Kind.HEARTBEAT, Kind.HEARTBEAT_V2})
_STATEMENT_HEAD_BYTES: Final = 13  # of a query's event, before what tells of its session
_SESSION: Final = slice(0, 4)
"""In the head of a query's event."""
_CREATED: Final = slice(52, 56)
"""In the description of a file's format: when the server began, where it did so with this file."""
_GTID_SOURCE: Final = slice(EVENT_HEADER_BYTES + 1, EVENT_HEADER_BYTES + 17)
_GTID_NUMBER: Final = slice(EVENT_HEADER_BYTES + 17, EVENT_HEADER_BYTES + 25)
_MARIADB_GTID = struct.Struct("<QIB")  # number, domain, flags
_LOAD_HEAD_BYTES: Final = 13  # more, of one that loads a file
_ANSI_QUOTES, _IGNORE_SPACE, _NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 3, 1 << 20
_OTHER_GRAMMARS: Final = 0b1_1111 << 8  # POSTGRESQL, ORACLE, MSSQL, DB2, MAXDB
_XA: Final = re.compile(
    rb"XA\s+(START|BEGIN|END|PREPARE|COMMIT|ROLLBACK)\s+(.*?)\s*(ONE\s+PHASE)?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_XID: Final = re.compile(rb"X'([0-9a-f]*)',X'([0-9a-f]*)',(\d+)", re.IGNORECASE)
# From the first blank of several alone: there may be any number of them, in a literal.
_STARTS_TRANSACTION: Final = re.compile(rb"(?<!\s)\s++START\s++TRANSACTION\s*+$", re.IGNORECASE)
_VERB: Final = re.compile(rb"[A-Z]+", re.IGNORECASE)

_Name = tuple[bytes, bytes, int]
"""A branch's, of XA."""


class Transactions:
    """The transactions of one log, from a place where one begins."""

    def __init__(self) -> None:
        self.file = ""
        self.made = 0
        """When that was begun, by the server's clock; 0 where that is not known yet."""
        self.first = "", 0
        """The file with which the stream began, and when that was begun; "" until that is known."""
        self.began = False
        """Whether the server has begun its work with a file that was come to since it resumed."""
        self.end = 0
        """Where in it the last event has ended."""
        self._is_long = False  # the file: longer than events say where they end
        self.boundary: Place = ("", 0)
        """Where a transaction ended last: from there on nothing was told yet."""
        self._prepared: dict[_Name, Change] = {}
        self._prepared_bytes = 0
        self._marked: tuple[Place, dict[_Name, Change]] = ("", 0), {}
        self._sources: dict[bytes, str] = {}  # the one that was named last, as GTIDs have it
        self._begin()

    def _begin(self) -> None:
        self._open = Change()
        self.in_transaction = False
        self._tables: dict[bytes, tuple[str, str]] = {}
        self._touched: dict[bytes, Changes] = {}
        self._shapes: set[tuple[bytes, str | None]] = set()

    def mark(self) -> None:
        """It may be resumed from the boundary of now, however much of the log is taken until then:
        keeps what is prepared here."""
        self._marked = self.boundary, dict(self._prepared)

    def resume(self, place: Place | None = None) -> None:
        """The stream begins anew at that place, by default at the boundary. What is prepared at any
        other than these is not known."""
        marked, prepared = self._marked
        if place is not None and place != self.boundary:
            self._prepared = dict(prepared) if place == marked else {}
            self._prepared_bytes = sum(each.size_bytes for each in self._prepared.values())
        self._begin()
        self.file, self.end, self.made, self.began = "", 0, 0, False
        self.first, self._is_long = ("", 0), False

    @staticmethod
    def takes_long(event: Event) -> bool:
        """Whether it has a text that is long, or may be once it is unpacked."""
        is_long = len(event.data) > _LONG_BYTES and _READ_BY.get(event.kind) is _QUERY
        return is_long or event.kind == Kind.MARIADB_QUERY_COMPRESSED

    @staticmethod
    def text_bytes(event: Event) -> int:
        """How much text it has, of a statement."""
        return len(event.data) if _READ_BY.get(event.kind) is _QUERY else 0

    def take(self, event: Event) -> Change | None:
        """What became visible by this event, if anything did."""
        kind = event.kind
        if kind in ROWS:
            number = event.data[-TABLE_ID_BYTES:]
            if number in self._tables:
                changes = ADDS if kind in INSERTS else DELETES if kind in DELETIONS else _UPDATES
                self._touched[number] = changes.with_(self._touched.get(number, ADDS))
            elif number != _NO_TABLE:
                self._open.everything = "rows of a table that the log does not name"
            return None
        try:
            return self._step(event, self._take(event))
        except (ProtocolError, IndexError, ValueError, struct.error):
            self._open.everything = f"an event of type {kind} that cannot be read"
            return self._step(event, None if self.in_transaction else self._commit())

    def _step(self, event: Event, change: Change | None) -> Change | None:
        """Follows where in the log that was."""
        end, flags = event.end_and_flags
        if end and not (event.nested or flags & _ARTIFICIAL or event.kind in _IN_NO_FILE):
            self._is_long |= end < self.end
            self.end = end
        begun = self.in_transaction or self._open or self._open.commit or self._tables
        if not begun:
            self.boundary = self.file, self.end
        if change is not None:
            change.end = self.file, self.end
            change.is_placed &= not self._is_long
        return change

    def _take(self, event: Event) -> Change | None:
        kind = event.kind
        if (read := _READ_BY.get(kind)) is not None:
            return read(self, event)
        if kind in _PASSED_OVER or event.flags & _IGNORABLE:
            return None
        self._open.everything = f"an event of type {kind}, which is not known"
        return None if self.in_transaction else self._commit()

    def _rotate(self, event: Event) -> Change | None:
        done, body = self._cut_short(), event.body
        self.file = body[8:].decode("utf-8", "surrogateescape")
        self.end = int.from_bytes(body[:8], "little")
        self.made, self._is_long = 0, False
        return done

    def _format_description(self, event: Event) -> None:
        self.made = event.seconds
        if not self.first[0]:
            self.first = self.file, self.made
        self.began |= any(event.body[_CREATED])

    def _gtid(self, event: Event) -> Change | None:
        """MySQL's; an anonymous one, or one with a tag, is not read."""
        done, data = self._cut_short(), event.data
        if event.kind == Kind.GTID:
            source = data[_GTID_SOURCE]
            if source not in self._sources:
                self._sources = {source: f"{uuid.UUID(bytes=source)}:"}
            number = int.from_bytes(data[_GTID_NUMBER], "little")
            self._open.commit = Commit(self._sources[source], number, event.server)
        return done

    def _mariadb_gtid(self, event: Event) -> Change | None:
        done = self._cut_short()
        number, domain, flags = _MARIADB_GTID.unpack_from(event.data, EVENT_HEADER_BYTES)
        self.in_transaction = not flags & _MARIADB_STANDALONE
        self._open.commit = Commit(f"{domain}-{event.server}-", number, event.server)
        return done

    def _payload(self, event: Event) -> Change | None:
        """A compressed transaction: what was in it has been taken, if it could be."""
        if event.whole:
            return None
        self._open.everything = "a compressed transaction, which is not unpacked here"
        return self._commit()

    def _incident(self, _event: Event) -> Change | None:
        self._open.everything = "the server says that its log has a gap"
        return self._commit()

    def _map(self, event: Event) -> None:
        if not event.whole:
            raise ValueError("a table with a longer description than is read")
        body, at = event.body, TABLE_ID_BYTES + 2
        number = body[:TABLE_ID_BYTES]
        size, at = body[at], at + 1
        schema, at = body[at : at + size], at + size + 1
        size, at = read_lenenc(body, at)
        if number in self._touched:  # a number may be another table's from here on
            self._settle()
        self._tables[number] = schema.decode(), body[at : at + size].decode()
        if len(self._tables) > MOST_TABLES:
            self._open.everything = "a transaction names more tables than are kept apart"
            self._tables.clear()
            self._touched.clear()

    def _settle(self) -> None:
        if self._touched:
            tables = self._tables
            self._open.merge([(tables[n], changes) for n, changes in self._touched.items()])
            self._touched.clear()

    def _commit(self, _event: Event | None = None) -> Change | None:
        self._settle()
        change = self._open
        self._begin()
        if self._prepared and (
            change.everything or any(each.may_define for each in change.statements)
        ):
            for held in self._prepared.values():
                if held.statements and not held.everything:
                    held.everything = "XA COMMIT of statements from before a definition"
        return change or None

    def _cut_short(self) -> Change | None:
        """What was gathered where the log goes on without its end: it may be visible."""
        self._settle()
        return self._commit() if self._open or self.in_transaction else None

    # Statements.

    def _query(self, event: Event) -> Change | None:
        body, head = event.body, _STATEMENT_HEAD_BYTES
        if event.kind == Kind.EXECUTE_LOAD_QUERY:
            head += _LOAD_HEAD_BYTES
        schema_bytes = body[8]
        session_bytes = int.from_bytes(body[11:13], "little")
        schema_at = head + session_bytes
        text = body[schema_at + schema_bytes + 1 :]
        if event.kind == Kind.MARIADB_QUERY_COMPRESSED and event.whole:
            text = _inflated(text)
        if (ended := self._turn(text)) is not None:
            if not ended:
                return None
            # Where a table with transactions was written, an XID ends them.
            self._open.session = int.from_bytes(body[:4], "little")
            return self._commit()
        if (xa := _XA.match(text)) is not None:
            return self._xa(xa)
        if not event.whole:
            self._open.everything = "a statement longer than is read"
        else:
            schema = body[schema_at : schema_at + schema_bytes].decode() or None
            self._say(text, schema, body[head:schema_at], body[_SESSION])
        return None if self.in_transaction else self._commit()

    def _turn(self, text: bytes) -> bool | None:
        """Whether a statement ends the transaction; None where it is about something else."""
        word = text[:20].upper()
        if word == b"BEGIN":
            self.in_transaction = True
            return False
        if word in (b"COMMIT", b"ROLLBACK"):
            return True  # a ROLLBACK is in the log for the sake of what it could not undo
        is_about = word.startswith((b"SAVEPOINT", b"ROLLBACK TO", b"RELEASE SAVEPOINT"))
        return False if is_about else None

    def _say(self, text: bytes, schema: str | None, told: bytes, session: bytes) -> None:
        """Adds what a statement does, unless another of its shape has been added. `told` is of its
        session's settings."""
        if self._open.everything:
            return
        modes, collation = settings(told)
        charset = "utf8mb4" if collation is None else of_collation(collation)
        read = None if charset is None else to_utf8(text, charset)
        if read is None or modes & _OTHER_GRAMMARS:
            verb = _VERB.match(text)
            word = verb[0].decode().upper() if verb else "a statement"
            self._open.everything = f"{word}: its session's settings are none it can be read by"
            return
        dialect = Dialect(
            ansi_quotes=bool(modes & _ANSI_QUOTES),
            no_backslash_escapes=bool(modes & _NO_BACKSLASH_ESCAPES),
            ignore_space=bool(modes & _IGNORE_SPACE),
            ascii_words=charset not in UTF8,
        )
        if self.in_transaction:  # MySQL's CREATE TABLE ... SELECT, whose rows follow
            read = _STARTS_TRANSACTION.sub(b"", read)
        try:
            shape = lex(read, dialect).shape
        except SqlSyntaxError:
            shape = b""
        if (shape or read, schema) not in self._shapes:
            self._shapes.add((shape or read, schema))
            statement = Logged(read, schema, dialect, shape, session)
            self._open.add(statement)
            if statement.may_define:  # a temporary table, amid a transaction
                self._shapes.clear()

    # XA.

    def _xa(self, said: re.Match[bytes]) -> Change | None:
        verb = said[1].upper()
        if verb in (b"START", b"BEGIN"):
            self.in_transaction = True
        if verb in (b"START", b"BEGIN", b"END"):
            return None
        known = _XID.fullmatch(said[2])
        if known is None or said[3]:
            if not said[3]:
                self._open.everything = "XA: a branch that cannot be told from others"
            return self._commit()
        name = bytes.fromhex(known[1].decode()), bytes.fromhex(known[2].decode()), int(known[3])
        if verb == b"PREPARE":
            return self._hold(name)
        held = self._release(name)
        if held is None and verb == b"COMMIT":
            self._open.everything = "XA COMMIT of what was prepared before the log was followed"
        if held is not None and verb == b"COMMIT":
            self._open.merge(held.tables.items())
            self._open.statements += held.statements
            self._open.is_placed = False
            self._open.everything = self._open.everything or held.everything
        return self._commit()

    def _prepare(self, event: Event) -> Change | None:
        body = event.body
        one_phase = body[0]
        number, first, second = (int.from_bytes(body[at : at + 4], "little") for at in (1, 5, 9))
        if one_phase:
            return self._commit()
        return self._hold((body[13 : 13 + first], body[13 + first : 13 + first + second], number))

    def _hold(self, name: _Name) -> Change | None:
        """What is prepared under this name is told when it is committed. Its statements are told at
        once, too: of tables without transactions their work can be seen, and is not undone."""
        self._settle()
        held = self._open
        told = Change(statements=[*held.statements], everything=held.everything)
        self._begin()
        self._release(name)
        if self._prepared_bytes + held.size_bytes > _MOST_PREPARED_BYTES:
            held = Change(everything="prepared branches have written more than is kept of them")
        self._prepared[name] = held
        self._prepared_bytes += held.size_bytes
        if len(self._prepared) > _MOST_PREPARED:
            self._release(next(iter(self._prepared)))
        return told or None

    def _release(self, name: _Name) -> Change | None:
        held = self._prepared.pop(name, None)
        self._prepared_bytes -= 0 if held is None else held.size_bytes
        return held


_QUERY: Final = Transactions._query
_READ_BY: Final[dict[int, Callable[[Transactions, Event], Change | None]]] = {
    Kind.GTID: Transactions._gtid,
    Kind.TAGGED_GTID: Transactions._gtid,
    Kind.ANONYMOUS_GTID: Transactions._gtid,
    Kind.MARIADB_GTID: Transactions._mariadb_gtid,
    Kind.QUERY: _QUERY,
    Kind.MARIADB_QUERY_COMPRESSED: _QUERY,
    Kind.EXECUTE_LOAD_QUERY: _QUERY,
    Kind.TABLE_MAP: Transactions._map,
    Kind.XID: Transactions._commit,
    Kind.XA_PREPARE: Transactions._prepare,
    Kind.TRANSACTION_PAYLOAD: Transactions._payload,
    Kind.ROTATE: Transactions._rotate,
    Kind.FORMAT_DESCRIPTION: Transactions._format_description,
    Kind.INCIDENT: Transactions._incident,
}


def _inflated(packed: bytes) -> bytes:
    """MariaDB's compressed text: how long its length is, its length, and zlib's stream."""
    width = packed[0] & 0x07
    length = int.from_bytes(packed[1 : 1 + width], "big")
    unpacker = zlib.decompressobj()
    if length > MOST_TEXT_BYTES:
        raise ValueError("a compressed statement is longer than is read")
    try:
        text = unpacker.decompress(packed[1 + width :], MOST_TEXT_BYTES)
    except zlib.error:
        raise ValueError("a compressed statement cannot be unpacked") from None
    if len(text) != length:
        raise ValueError("a compressed statement has another length than it says")
    return text
