"""The server whose log is followed: what it allows, its stream, and when a commit can be seen.

The log tells of a commit a moment before it can be seen. Who bumped at once could have the old rows
stored under the new version, for ever. So before a bump the server is asked until it says that the
commit is done: MySQL by its GTID, MariaDB by the place in the log up to which commits can be seen.
"""

import asyncio
import re
import secrets
import struct
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from sqlcache.binlog.change import Change, Commit, Place
from sqlcache.binlog.events import Event, EventStream
from sqlcache.driver import aiomysql
from sqlcache.errors import StreamEnded, UpstreamError
from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import packet
from sqlcache.patience import Patience
from sqlcache.sql.catalog_loader.server import WHICH_SERVER, identity_of

HEARTBEAT_S: Final = 1.0
_SILENCE_S: Final = 5.0
_ASKED_FOR_S: Final = 5.0  # how long an answer may take
_SEEN_WITHIN_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.001
_LONGEST_LOOK_S: Final = 0.05
_FILES_BEGUN_BEFORE: Final = 2
_READ_BYTES: Final = 262_144
_UNKNOWN_VARIABLE: Final = 1193
_SYNTAX_ERROR: Final = 1064
_DENIED: Final = frozenset({1044, 1045, 1142, 1227})
_NO_LOG: Final = 1381
_TURNED_OFF: Final = (
    "the server has turned its binary log off, as it could not write it: see its error log, and"
    " start it anew"
)
_OWNED: Final = re.compile(
    "([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|:([a-z_][a-z_0-9]*)|:([0-9]+)#", re.ASCII
)
_DUMP = struct.Struct("<BIHI")
_LEAST_SERVER_ID: Final = 1 << 31
GRANT: Final = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO it"


class Seen(Enum):
    """Whether all can see what the log has told."""

    YES = "yes"
    NOT_YET = "not yet"
    UNKNOWN = "the server does not say"


Connect = Callable[[], Awaitable[aiomysql.Connection]]
"""A new connection of the service account. Raises: UpstreamError."""


class CannotFollow(UpstreamError):
    """The account or the server does not allow to follow the log: says what is missing."""


def order(place: Place) -> tuple[int, int]:
    """What places compare by: files of the log are numbered."""
    number = place[0].rpartition(".")[2]
    return int(number) if number.isdigit() else 0, place[1]


class Source:
    """Two connections to one server: its stream, and one to ask. `close` ends both."""

    def __init__(self, stream: aiomysql.Connection, asked: aiomysql.Connection) -> None:
        self._stream = stream
        self._asked = asked
        self._one_at_a_time = asyncio.Lock()
        self._events: EventStream | None = None
        self._first: list[Event] = []  # come, and not read yet
        self._pieces: Iterator[list[Event]] = iter(())  # of what has come
        self.is_mariadb = "mariadb" in str(stream.get_server_info()).lower()
        self.identity = ""
        """What tells the server from all others."""
        self.number = 0
        """Its `server_id`: what it calls itself in its log."""
        self._may_ask_status = True
        self.filtered = ""
        """What the server leaves out of its log, or may, for people; "" where that is nothing."""

    @classmethod
    async def open(cls, connect: Connect) -> "Source":
        """Logs in. Raises: UpstreamError; CannotFollow."""
        stream = await connect()
        try:
            source = cls(stream, await connect())
        except BaseException:
            stream.close()
            raise
        try:
            await source._check()
        except BaseException:
            source.close()
            raise
        return source

    async def is_left(self, connect: Connect) -> bool:
        """Whether new connections come to another server, as far as that can be seen. Behind a name
        or a balancer the old ones may go on as if nothing was."""
        try:
            connection = await connect()
        except UpstreamError:
            return False
        other = Source(connection, connection)  # nobody is to wait for its answers
        try:
            return await other._identity_by(connection) != self.identity
        except UpstreamError:
            return False
        finally:
            other.close()

    def close(self) -> None:
        """Ends both connections at once: MySQL, which sends, would take no notice of a word."""
        for connection in (self._stream, self._asked):
            connection.close()

    async def _check(self) -> None:
        logs, number = (await self._ask("SELECT @@global.log_bin, @@global.server_id"))[0]
        if not int(logs):
            raise CannotFollow("the server has no binary log: start it with log_bin")
        if not int(number):
            raise CannotFollow("the server sends its binary log to nobody: set its server_id")
        self.number = int(number)
        self.identity = await self._identity_by(self._asked)
        if await self._identity_by(self._stream) != self.identity:
            raise UpstreamError("of two connections each came to another server")
        await self.place()
        await self.see_what_is_left_out()

    async def see_what_is_left_out(self) -> None:
        """Finds out what is `filtered` now. Raises: UpstreamError; CannotFollow."""
        left_out = [await self._schemas_left_out(), await self._replicated_left_out()]
        self.filtered = ", ".join(filter(None, left_out))

    async def _schemas_left_out(self) -> str:
        try:
            status = await self._log_status()
        except CannotFollow:  # on MariaDB, which tells its place to anyone
            return "perhaps schemas, which only an account with BINLOG MONITOR is told"
        filters = ", ".join(str(each) for each in status[2:4] if each)
        return f"schemas ({filters})" if filters else ""

    async def _replicated_left_out(self) -> str:
        for name in ("log_replica_updates", "log_slave_updates"):
            if logged := await self._variable(name):
                break
        if logged != "0" or not await self._is_replica():
            return ""
        return f"what it gets from its source ({name} = OFF)"

    async def _is_replica(self) -> bool:
        if self.is_mariadb:
            rows = await self._ask("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
            return any(int(running) for _, running in rows)
        try:
            return bool(await self._ask("SHOW REPLICA STATUS"))
        except UpstreamError as error:
            if _code(error) != _SYNTAX_ERROR:
                raise
            return bool(await self._ask("SHOW SLAVE STATUS"))

    async def _identity_by(self, connection: aiomysql.Connection) -> str:
        return identity_of(await self._ask(WHICH_SERVER, connection))

    async def _variable(self, name: str) -> str:
        """A global variable; "" where the server has none of that name."""
        try:
            return str((await self._ask(f"SELECT @@global.{name}"))[0][0])
        except CannotFollow:
            raise
        except UpstreamError as error:
            if _code(error) == _UNKNOWN_VARIABLE:
                return ""
            raise

    async def place(self) -> Place:
        """Where the log ends now; on MariaDB, up to where its commits can be seen. Raises:
        CannotFollow; UpstreamError."""
        if self.is_mariadb:
            await self._check_it_logs()
            return await self._passed()
        status = await self._log_status()
        return str(status[0]), int(status[1])

    async def _check_it_logs(self) -> None:
        """MariaDB goes on without its log where it cannot write that, and tells anyone the last
        place in it for ever: only who may ask for its status is told that there is none."""
        if not self._may_ask_status:
            return
        try:
            rows = await self._ask("SHOW MASTER STATUS")
        except CannotFollow:
            self._may_ask_status = False
            return
        if not rows:
            raise CannotFollow(_TURNED_OFF)

    async def _passed(self) -> Place:
        rows = await self._ask("SHOW SESSION STATUS LIKE 'binlog_snapshot_%'")
        told = {str(name).lower(): value for name, value in rows}
        return str(told["binlog_snapshot_file"]), int(told["binlog_snapshot_position"])

    async def owned(self) -> list[Commit]:
        """What is being committed on a MySQL with GTIDs, as far as it has one by now: it may be
        logged already."""
        told = "" if self.is_mariadb else await self._variable("gtid_owned")
        return list(_owned(told))

    async def resets(self) -> int:
        """How often it was told to begin something anew, as its log, since its own start."""
        rows = await self._ask("SHOW GLOBAL STATUS LIKE 'Com_reset'")
        return int(rows[0][1])

    async def has(self, place: Place) -> bool:
        """Whether it can send its log from there on."""
        logs = await self._ask("SHOW BINARY LOGS")
        return any(str(file) == place[0] and place[1] <= int(size) for file, size, *_ in logs)

    @property
    def tells_what_is_seen(self) -> bool:
        """Whether what is logged before its `place` can be seen when it says so."""
        return self.is_mariadb

    async def _log_status(self) -> tuple[Any, ...]:
        try:
            rows = await self._ask("SHOW BINARY LOG STATUS")
        except UpstreamError as error:
            if _code(error) != _SYNTAX_ERROR:
                raise
            rows = await self._ask("SHOW MASTER STATUS")
        if not rows:
            raise CannotFollow("the server has no binary log: start it with log_bin")
        return tuple(rows[0])

    async def begin(self, place: Place, longest_bytes: int) -> None:
        """Asks for the log from this place on, and returns when it comes. Raises as `read` does;
        StreamRefused where the server does not send it.

        The number and the name that it gives itself are those of no replica: MySQL ends an older
        stream that has the same.
        """
        settings = [
            "@mariadb_slave_capability = 4",
            "@master_binlog_checksum = @@global.binlog_checksum",
            "@source_binlog_checksum = @@global.binlog_checksum",
            f"@master_heartbeat_period = {int(HEARTBEAT_S * 1e9)}",
            f"@source_heartbeat_period = {int(HEARTBEAT_S * 1e9)}",
        ]
        if not self.is_mariadb:
            own = uuid.uuid4()
            settings += [f"@slave_uuid = '{own}'", f"@replica_uuid = '{own}'"]
        await self._ask(f"SET {', '.join(settings)}", self._stream)
        number = _LEAST_SERVER_ID | secrets.randbits(31)
        head = _DUMP.pack(Command.BINLOG_DUMP, place[1], 0, number)
        self._stream._writer.write(packet(0, head + place[0].encode()))
        self._events = EventStream(longest_bytes=longest_bytes)
        while not self._first:
            self._first = await self._next()

    async def read(self) -> list[Event]:
        """Some of the events that have come, of what is at hand; perhaps none. The server is never
        silent for long. Raises: UpstreamError; ConnectionLost; BinlogGap; ProtocolError."""
        first, self._first = self._first, []
        return first or await self._next()

    async def _next(self) -> list[Event]:
        assert self._events is not None
        await asyncio.sleep(0)  # others have their turns, however much has come
        piece = next(self._pieces, None)
        if piece is None:
            self._pieces = self._events.pieces(await self._receive())
            piece = next(self._pieces, [])
        return piece

    async def _receive(self) -> bytes:
        try:
            with Patience(_SILENCE_S):
                data: bytes = await self._stream._reader.read(_READ_BYTES)
        except TimeoutError:
            raise StreamEnded(f"the server was silent for {_SILENCE_S:g} s") from None
        except OSError as error:
            raise StreamEnded(f"the connection broke: {error}") from error
        if not data:
            raise StreamEnded("the server closed the connection")
        return data

    @property
    def bytes(self) -> int:
        """How much of the log has come."""
        return 0 if self._events is None else self._events.bytes

    async def can_be_seen(
        self, changes: Iterable[Change], within_s: float = _SEEN_WITHIN_S
    ) -> list[tuple[Seen, list[Change]]]:
        """Waits until what the log tells can be seen by all, so long at most; says of which changes
        that is so. Raises: UpstreamError."""
        found: list[tuple[Seen, list[Change]]] = []
        told: list[Change] = []
        untold: list[Change] = []
        for each in changes:
            (told if self._tells_of(each) else untold).append(each)
        if untold:
            queries = await self._queries({each.session for each in untold} - {None})
            locked: list[Change] = []
            unknown: list[Change] = []
            for each in untold:
                (locked if each.may_be_locked(queries) else unknown).append(each)
            found += [(Seen.NOT_YET, locked)] if locked else []
            found += [(Seen.UNKNOWN, unknown)] if unknown else []
        if told:
            ask = self._have_passed if self.is_mariadb else self._are_executed
            found.append((await ask(told, within_s), told))
        return found

    def _tells_of(self, change: Change) -> bool:
        """Whether the server says when it can be seen."""
        is_told = change.is_placed if self.is_mariadb else change.commit is not None
        return is_told and change.session is None

    async def _queries(self, sessions: Collection[int | None]) -> Mapping[int, int]:
        """What these are at, of MariaDB's; nothing of those that the account may not see."""
        if not (sessions and self.is_mariadb):
            return {}
        numbers = ",".join(map(str, sessions))
        told = await self._ask(
            "SELECT ID, QUERY_ID FROM information_schema.PROCESSLIST"
            f" WHERE COMMAND <> 'Sleep' AND ID IN ({numbers})"
        )
        return dict(told)

    async def _are_executed(self, changes: Collection[Change], within_s: float) -> Seen:
        names: dict[str, list[int]] = defaultdict(list)
        for each in changes:
            if each.commit is not None:
                names[each.commit.source].append(each.commit.number)
        told = ",".join(f"{source}{_intervals(each)}" for source, each in names.items())
        asked = f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{told}', {within_s:g})"
        if (await self._ask(asked))[0][0] == 0:
            return Seen.YES
        # One that is not known to be logged may be given up, as by a replica that is stopped.
        commits = [each.commit for each in changes if each.commit is not None]
        if any(each.server for each in commits):
            return Seen.NOT_YET
        owned = set(await self.owned())
        return Seen.NOT_YET if any(each in owned for each in commits) else Seen.YES

    async def _have_passed(self, changes: Iterable[Change], within_s: float) -> Seen:
        """What MariaDB says, whose commits are done in the order in which they are logged. It
        begins another file before the commit is done with which one ends, perhaps two."""
        place = max((each.end for each in changes), key=order)
        pause_s, waited_s = _LOOK_AGAIN_S, 0.0
        while order(now := await self._passed()) < order(place):
            if waited_s > within_s:
                return Seen.NOT_YET
            await asyncio.sleep(pause_s)
            waited_s += pause_s
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
        files = order(now)[0] - order(place)[0]
        return Seen.UNKNOWN if 0 < files <= _FILES_BEGUN_BEFORE else Seen.YES

    async def _ask(self, text: str, on: aiomysql.Connection | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query's answer. Raises: UpstreamError; CannotFollow where the account may
        not ask that."""
        async with self._one_at_a_time:
            try:
                with Patience(_ASKED_FOR_S):
                    async with (on or self._asked).cursor() as cursor:
                        await cursor.execute(text)
                        return list(await cursor.fetchall())
            except aiomysql.MySQLError as error:
                raise refusal(error.args[0] if error.args else 0, str(error)) from error
            except (OSError, EOFError, TimeoutError) as error:
                raise UpstreamError(f"MySQL does not answer: {error!r}") from error


def refusal(code: object, why: str) -> UpstreamError:
    """What an error of the server means for who follows its log."""
    if code in _DENIED:
        return CannotFollow(f"the account of upstream.url may not read the log: {GRANT} ({why})")
    if code == _NO_LOG:
        return CannotFollow("the server has no binary log: start it with log_bin")
    return UpstreamError(why)


def _code(error: UpstreamError) -> object:
    cause = error.__cause__
    return cause.args[0] if cause is not None and cause.args else None


def _owned(told: str) -> Iterator[Commit]:
    """As `gtid_owned` has them, with who owns each; between two UUIDs there may be nothing else:
    UUID:5#12:6#13UUID:tag:1#14."""
    source = of = ""
    for first, tag, number in _OWNED.findall(told):
        if first:
            source = of = f"{first}:"
        elif tag:
            of = f"{source}{tag}:"
        else:
            yield Commit(of, int(number), 0)


def _intervals(numbers: list[int]) -> str:
    """As GTID sets have them: 5-9:12."""
    told: list[list[int]] = []
    for number in sorted(numbers):
        if told and number == told[-1][1] + 1:
            told[-1][1] = number
        else:
            told.append([number, number])
    return ":".join(f"{first}-{last}" for first, last in told)
