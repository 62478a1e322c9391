"""Runs a script of statements twice, straight to the server and through sqlcache, and compares.

A script has a line a step: a session's name and what it does, as in

    a   CREATE TABLE t (v INT)        -- the first must succeed
    a   SELECT v FROM t
    a+  SELECT v FROM t            -- `+`: through sqlcache this is answered from the cache
    b   UPDATE t SET v = 'new'
    b   .use {db}_other            -- a dot: a command of the protocol; see `_Client`

`{db}` is the run's own schema and `{user}` an account of its own; sessions begin in the schema. All
that the server says is compared: rows, columns, types, flags, counts, warnings, errors. A `+` keeps
a script honest: without a warm cache there would be nothing to get wrong.

Sessions log in as `app`, who may do everything; `.login` names another account, password `p`.
"""

from __future__ import annotations

import re
import secrets
import struct
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import pymysql
from pymysql.constants import CLIENT, COMMAND, FLAG

from sqlcache.demo.servers import PrivateMemcached, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Command, Status
from tests.forked import ForkedSqlcache
from tests.servers import PATIENT

_READ_LEASE_S = 0.02  # and more
_IGNORED_STATUS = Status.QUERY_WAS_SLOW
_STEP = re.compile(r"(\w+)(\+?)\s+(.*)", re.DOTALL)

# PyMySQL has no public way to send other commands than COM_QUERY, nor types for its own.
_wire: Any = pymysql.connections
_auth: Any = import_module("pymysql._auth")

_TIMEOUT_S = 20
_NUMBER_OF_STATEMENT = re.compile(r"\(\d+\)(?= has no| given to)")
_NO_STATEMENT = 4_000_000_000
_HITS = "sqlcache_hits_total"
_ANSWERED = "sqlcache_upstream_seconds_count"

Answer = tuple[Any, ...]
Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Step:
    """One line: who, what, and whether it must be a hit."""

    session: str
    text: str
    is_hit: bool

    def __str__(self) -> str:
        return f"{self.session}{'+' * self.is_hit}  {self.text}"


def steps_of(script: str) -> list[Step]:
    """A script's steps; a line indented deeper than the first goes on the one before."""
    lines = [line for line in script.splitlines() if line.strip()]
    margin = len(lines[0]) - len(lines[0].lstrip())
    joined: list[str] = []
    for line in lines:
        if line[: margin + 1].isspace():
            joined[-1] += "\n" + line.strip()
        else:
            joined.append(line.strip())
    steps = []
    for line in joined:
        found = _STEP.fullmatch(line)
        assert found is not None, f"no step: {line}"
        steps.append(Step(found[1], found[3], bool(found[2])))
    return steps


class World(AbstractContextManager["World"]):
    """A SQL server with sqlcache and a memcached before it, for the scripts of one module."""

    def __init__(self, upstream: PrivateSqlServer, folder: Path, **settings: Any) -> None:
        self.upstream = upstream
        self.memcached = PrivateMemcached(folder / "memcached")
        self.folder = folder
        # What scripts do directly changes rights: nothing is to find that while others run.
        self.settings = {"upstream__catalog_refresh_s": 3600, **settings}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.memcached)
        nodes = (self.memcached.address,)
        url = self.upstream.service_url
        self.proxy = ForkedSqlcache(
            self.folder / "sqlcache", url, nodes, **{**PATIENT, **self.settings}
        )
        self._stack.enter_context(self.proxy)
        return self

    def __exit__(self, *_: object) -> None:
        code = self.proxy.stop()
        log = self.proxy.log_text()
        self._stack.close()
        assert "Traceback" not in log, log
        assert not code, f"exit code {code}; the log says:\n{log}"

    @property
    def is_mariadb(self) -> bool:
        return self.upstream.name == "mariadbd"

    @property
    def version(self) -> tuple[int, ...]:
        """The server's: 10.11.19-MariaDB is (10, 11, 19)."""
        ((told,),) = self.upstream.sql("SELECT VERSION()")
        return tuple(map(int, re.findall(r"\d+", told)[:3]))

    def hits(self) -> float:
        """How many reads sqlcache answered from the cache so far."""
        return self.proxy.metrics()[_HITS]

    def forget(self) -> None:
        """Has memcached forget everything, and nobody go by what it said before."""
        self.memcached.flush()
        time.sleep(_READ_LEASE_S)

    def compare(self, script: str, options: Options | None = None) -> None:
        """Fails unless the script's answers are the same both ways, and its `+` steps hits."""
        steps = steps_of(script)
        direct = self._run(steps, options or {}, proxied=False)
        proxied = self._run(steps, options or {}, proxied=True)
        shown = ""
        for step, expected, got in zip(steps, direct, proxied, strict=True):
            shown += f"\n{step}"
            assert got == expected, (
                f"{shown}\nthrough sqlcache: {got}\ndirectly:         {expected}"
            )

    def _run(self, steps: list[Step], options: Options, *, proxied: bool) -> list[list[Answer]]:
        names = {"db": f"trap_{secrets.token_hex(3)}"}
        names["user"] = names["db"] + "_user"
        setting_up = f"CREATE DATABASE {names['db']} CHARACTER SET utf8mb4"
        self.upstream.sql(setting_up)
        sessions: dict[str, _Client] = {}
        answers = []
        try:
            for step in steps:
                if step.session not in sessions:
                    login = dict(options.get(step.session, {}))
                    sessions[step.session] = _Client(self, names, login, proxied=proxied)
                before = self.proxy.metrics() if step.is_hit and proxied else None
                answers.append(sessions[step.session].do(step.text))
                made = step is not steps[0] or all(a[0] != "error" for a in answers[0])
                assert made, f"what the script begins with fails: {answers[0]}"
                if before is not None:
                    after = self.proxy.metrics()
                    changed = {k: v for k, v in after.items() if v != before.get(k)}
                    ran = "\n".join(map(str, steps[: len(answers)]))
                    assert _HITS in changed, f"the last is no hit:\n{ran}\nbut {changed}"
        finally:
            for session in sessions.values():
                session.close()
            self._clean_up(names)
        return answers

    def _clean_up(self, names: Mapping[str, str]) -> None:
        schemas = self.upstream.sql(f"SHOW DATABASES LIKE '{names['db']}%'")
        for (schema,) in schemas:
            self.upstream.sql(f"DROP DATABASE IF EXISTS `{schema}`")
        for kind in ("USER", "ROLE"):
            self.upstream.sql(f"DROP {kind} IF EXISTS '{names['user']}'")


class _Client:
    """One session of a script. Raises nothing for what the server refuses: that is an answer."""

    def __init__(
        self, world: World, names: Mapping[str, str], login: Mapping[str, Any], *, proxied: bool
    ) -> None:
        self.world = world
        self.names = names
        self.proxied = proxied
        self.prepared: dict[str, int] = {}
        self.connection: Any = None
        self.encoding = ""
        self.log_in({"database": names["db"], "charset": "utf8mb4", **login})

    def log_in(self, login: Mapping[str, Any]) -> list[Answer]:
        self.close()
        server = self.world.proxy if self.proxied else self.world.upstream
        account = {"user": self.world.upstream.user, "password": self.world.upstream.password}
        flag = CLIENT.MULTI_STATEMENTS | CLIENT.LOCAL_FILES
        named = {k: v.format(**self.names) if isinstance(v, str) else v for k, v in login.items()}
        known = {**account, "client_flag": flag, "local_infile": True, "autocommit": None, **named}
        known = {"use_unicode": False, "read_timeout": _TIMEOUT_S, **known}
        try:
            self.connection = _Connection(host=server.host, port=server.port, **known)
        except pymysql.MySQLError as error:
            return [self._error(error)]
        # Texts are sent in the client's encoding, and nothing that comes back is decoded.
        self.encoding, self.connection.encoding = self.connection.encoding, "latin1"
        self.connection.decoders = {}
        self.prepared.clear()
        return [("logged in", self.connection.server_status)]

    def close(self) -> list[Answer]:
        if self.connection is not None and self.connection.open:
            self.connection.close()
        return []

    def do(self, text: str) -> list[Answer]:
        """What the server answers to one step."""
        text = text.replace("{db}", self.names["db"]).replace("{user}", self.names["user"])
        try:
            if text.startswith("."):
                command, _, rest = text[1:].partition(" ")
                answer: list[Answer] = getattr(self, f"_do_{command}")(rest)
                return answer
            return self._query(text)
        except pymysql.MySQLError as error:
            return [self._error(error)]

    def _query(self, text: str) -> list[Answer]:
        connection = self.connection
        connection.query(text.encode(self.encoding))
        answers = [self._answer(connection._result)]
        while connection._result is not None and connection._result.has_next:
            try:
                connection.next_result()
            except pymysql.MySQLError as error:
                return [*answers, self._error(error)]
            answers.append(self._answer(connection._result))
        return answers

    def _answer(self, result: Any) -> Answer:
        status = result.server_status & ~_IGNORED_STATUS
        if result.description is None:
            message = result.message if isinstance(result.message, bytes) else b""
            return ("OK", result.affected_rows, result.insert_id, status, message)
        columns = [
            (
                *map(self._neutral, (f.name, f.org_name, f.table_name, f.org_table)),
                *(f.charsetnr, f.length, f.type_code, f.flags, f.scale),
            )
            for f in result.fields
        ]
        rows = [tuple(self._neutral(value) for value in row) for row in result.rows]
        return (rows, columns, status, result.warning_count)

    def _error(self, error: pymysql.MySQLError) -> Answer:
        said = _NUMBER_OF_STATEMENT.sub("(n)", str(error.args[1:]))
        return ("error", error.args[0], self._neutral(said))

    def _neutral(self, value: Any) -> Any:
        """A value without the names that differ from run to run."""
        if isinstance(value, bytes):
            value = value.decode("latin1")
        if not isinstance(value, str):
            return value
        for name, chosen in reversed(list(self.names.items())):
            value = value.replace(chosen, f"{{{name}}}")
        return value

    # Commands of the protocol.

    def _do_login(self, rest: str) -> list[Answer]:
        """Another account, in the schema that follows it, if any."""
        user, _, schema = rest.partition(" ")
        return self.log_in({"user": user, "password": "p", "database": schema or None})

    def _do_again(self, rest: str) -> list[Answer]:
        """The same account on a new connection, once the server has ended the one before: a branch
        that it prepared is nobody's until then."""
        number = self.connection.thread_id()
        listed = f"SELECT 1 FROM information_schema.processlist WHERE id = {number}"
        self.close()
        wait_until(lambda: not self.world.upstream.sql(listed), 20, "the end of the session")
        return self.log_in({"database": self.names["db"], "charset": rest or "utf8mb4"})

    def _do_change_user(self, rest: str) -> list[Answer]:
        """COM_CHANGE_USER to an account, in the schema that follows it, if any."""
        user, _, schema = rest.partition(" ")
        if user == "app":
            user, password = self.world.upstream.user, self.world.upstream.password
        else:
            password = "p"
        connection = self.connection
        data = _auth.scramble_native_password(password.encode(), connection.salt)
        plugin = b"mysql_native_password\0"
        if connection._auth_plugin_name == "caching_sha2_password":
            data = _auth.scramble_caching_sha2(password.encode(), connection.salt)
            plugin = b"caching_sha2_password\0"
        payload = user.encode() + b"\0" + bytes((len(data),)) + data + schema.encode() + b"\0"
        payload += (45).to_bytes(2, "little") + plugin + b"\0"
        connection._execute_command(COMMAND.COM_CHANGE_USER, payload)
        self.prepared.clear()
        connection.password = password.encode()
        return [self._authenticated(connection)]

    def _authenticated(self, connection: Any) -> Answer:
        packet = connection._read_packet()
        if packet.is_auth_switch_request():
            packet.read_uint8()
            plugin = packet.read_string()
            packet = connection._process_auth(plugin, packet)
        while packet.is_extra_auth_data():
            packet = _auth.caching_sha2_password_auth(connection, packet)
        return ("user changed", packet.is_ok_packet())

    def _do_reset(self, _: str) -> list[Answer]:
        """COM_RESET_CONNECTION."""
        self.prepared.clear()
        return self._simply(Command.RESET_CONNECTION, b"")

    def _do_use(self, rest: str) -> list[Answer]:
        """COM_INIT_DB."""
        return self._simply(COMMAND.COM_INIT_DB, rest.encode(self.encoding))

    def _do_ping(self, _: str) -> list[Answer]:
        return self._simply(COMMAND.COM_PING, b"")

    def _do_command(self, rest: str) -> list[Answer]:
        """Any other, by its number, and nothing behind it."""
        return self._simply(int(rest), b"")

    def _do_option(self, rest: str) -> list[Answer]:
        """COM_SET_OPTION: several statements in a text may be sent (0), or not (1)."""
        self.connection._execute_command(COMMAND.COM_SET_OPTION, int(rest).to_bytes(2, "little"))
        eof = _wire.EOFPacketWrapper(self.connection._read_packet())
        return [("EOF", eof.server_status, eof.warning_count)]

    def _simply(self, command: int, payload: bytes) -> list[Answer]:
        self.connection._execute_command(command, payload)
        packet = self.connection._read_packet()
        ok = _wire.OKPacketWrapper(packet)
        return [("OK", ok.server_status, ok.warning_count)]

    def _do_prepare(self, rest: str) -> list[Answer]:
        """COM_STMT_PREPARE: a name for it, and its text."""
        name, _, text = rest.partition(" ")
        connection = self.connection
        connection._execute_command(COMMAND.COM_STMT_PREPARE, text)
        packet = connection._read_packet()
        packet.advance(1)
        self.prepared[name] = packet.read_uint32()
        columns, parameters = packet.read_uint16(), packet.read_uint16()
        for count in (parameters, columns):
            for _ in range(count + bool(count)):  # and an EOF
                connection._read_packet()
        return [("prepared", columns, parameters)]

    def _do_execute(self, rest: str) -> list[Answer]:
        """COM_STMT_EXECUTE: its name, and the parameters, strings but for `NULL`, `#1`, `#1.5`;
        `\\n` in them is the end of a line."""
        self._execute(rest, b"\0")
        return [self._binary_answer(self.connection)]

    def _do_cursor(self, rest: str) -> list[Answer]:
        """COM_STMT_EXECUTE with a cursor, and a COM_STMT_FETCH of some rows."""
        self._execute(rest, b"\1")
        connection = self.connection
        columns = connection._read_packet().read_length_encoded_integer()
        for _ in range(columns + 1):
            connection._read_packet()
        number = self.prepared[rest.split()[0]].to_bytes(4, "little")
        connection._execute_command(COMMAND.COM_STMT_FETCH, number + b"\2\0\0\0")
        return [self._rows(connection, columns)]

    def _do_long_data(self, rest: str) -> list[Answer]:
        """COM_STMT_SEND_LONG_DATA for the first parameter, which is then executed as `LONG`."""
        name, text = rest.split()
        number = self.prepared[name].to_bytes(4, "little")
        self.connection._execute_command(
            COMMAND.COM_STMT_SEND_LONG_DATA, number + b"\0\0" + text.encode()
        )
        return []

    def _do_fetch(self, name: str) -> list[Answer]:
        """COM_STMT_FETCH of two rows of one column."""
        number = self.prepared[name].to_bytes(4, "little")
        self.connection._execute_command(COMMAND.COM_STMT_FETCH, number + b"\2\0\0\0")
        return [self._rows(self.connection, 1)]

    def _do_close(self, name: str) -> list[Answer]:
        """COM_STMT_CLOSE, to which no answer comes; the name goes on naming what was closed."""
        number = self.prepared.get(name, _NO_STATEMENT).to_bytes(4, "little")
        self.connection._execute_command(COMMAND.COM_STMT_CLOSE, number)
        return []

    def _execute(self, rest: str, flags: bytes) -> None:
        name, *parameters = rest.split()
        payload = (
            self.prepared.get(name, _NO_STATEMENT).to_bytes(4, "little")
            + flags
            + (1).to_bytes(4, "little")
        )
        if parameters:
            nulls = sum(1 << at for at, text in enumerate(parameters) if text == "NULL")
            types, values = zip(*map(_typed, parameters), strict=True)
            payload += nulls.to_bytes((len(parameters) + 7) // 8, "little") + b"\1"
            payload += b"".join(types) + b"".join(values)
        self.connection._execute_command(COMMAND.COM_STMT_EXECUTE, payload)

    def _binary_answer(self, connection: Any) -> Answer:
        packet = connection._read_packet()
        if packet.is_ok_packet():
            ok = _wire.OKPacketWrapper(packet)
            return ("OK", ok.affected_rows, ok.insert_id, ok.server_status & ~_IGNORED_STATUS)
        columns = packet.read_length_encoded_integer()
        definitions = [connection._read_packet().get_all_data() for _ in range(columns)]
        connection._read_packet()
        return (*self._rows(connection, columns), [_kind(each) for each in definitions])

    def _rows(self, connection: Any, columns: int) -> Answer:
        rows: list[bytes] = []
        while not (packet := connection._read_packet()).is_eof_packet():
            rows.append(packet.get_all_data())
        end = _wire.EOFPacketWrapper(packet)
        return (rows, columns, end.server_status & ~_IGNORED_STATUS, end.warning_count)


class _Connection(_wire.Connection):  # type: ignore[misc]
    """Keeps the status flags at a result set's end, which PyMySQL reads and drops."""

    def _read_query_result(self, unbuffered: bool = False) -> int:
        self._result = result = _Result(self)
        result.read()
        if result.server_status is not None:
            self.server_status = result.server_status
        affected: int = result.affected_rows
        return affected


class _Result(_wire.MySQLResult):  # type: ignore[misc]
    def _check_packet_is_eof(self, packet: Any) -> bool:
        is_eof: bool = super()._check_packet_is_eof(packet)
        if is_eof:
            self.server_status = int.from_bytes(packet.get_all_data()[3:5], "little")
        return is_eof


def ended_long(before: Mapping[str, float], after: Mapping[str, float], asked: float) -> float:
    """How many of the statements that MySQL was asked took the long way for their ends alone, as a
    write does amid a beat of its fence, by the metrics before and after: their answers count
    twice."""
    return max(after[_ANSWERED] - before[_ANSWERED] - asked, 0)


def _kind(definition: bytes) -> Answer:
    """A column's character set, length, type, flags and decimals. MariaDB may change its mind about
    whether it can be NULL."""
    charset, length, type_, flags, decimals = struct.unpack("<HIBHB2x", definition[-12:])
    return (charset, length, type_, flags & ~FLAG.NOT_NULL, decimals)


def _typed(parameter: str) -> tuple[bytes, bytes]:
    """A parameter's type and bytes: a LONGLONG, a DOUBLE, a TIME, NULL or a string."""
    if parameter == "NULL":
        return b"\x06\0", b""
    if parameter == "LONG":
        return b"\xfd\0", b""
    if parameter.startswith("TIME'"):
        return b"\x0b\0", bytes((8, 0, 0, 0, 0, 0, *map(int, parameter[5:-1].split(":"))))
    if parameter.startswith("#"):
        number = parameter[1:]
        if "." in number:
            return b"\x05\0", struct.pack("<d", float(number))
        return b"\x08\0", struct.pack("<q", int(number))
    text = parameter.encode().replace(rb"\n", b"\n")
    return b"\xfd\0", bytes((len(text),)) + text
