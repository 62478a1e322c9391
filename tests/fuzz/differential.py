"""Runs random scripts on twins, one schema directly and one through sqlcache, and compares.

    python -m tests.fuzz.differential --minutes 10 --server mariadb [--seed 7]

Each step of a script is done to both twins, and all that the server says must be the same, byte for
byte: rows, columns, counts, warnings, errors, status flags; but for what shows the server's plan,
or an oddity of its own that no client can count on. Several sessions take turns, those of
the second twin through two sqlcaches on one memcached. Reads are repeated, so that many are hits.

A script depends on nothing but its seed and what the server answers. Where twins differ, steps are
taken away as long as they still do, and what is left is printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Self

import pymysql

from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, read_ok
from tests.fakes.raw_client import Address
from tests.fuzz import trusting
from tests.fuzz.statements import PROBES, SETTINGS, TRANSACTIONS, Statements
from tests.fuzz.tables import Schema
from tests.fuzz.wire import Answer, Parameter, Wire
from tests.servers import PATIENT, PrivateMySQL

SESSIONS = 4
_ACCOUNT = "fuzz"
_OWNERS_ONLY = "LOCK TABLES"
_PREPARE, _EXECUTE, _CURSOR = ".prepare", ".execute", ".cursor"
_NUMBER_OF_PREPARED = re.compile(rb"(?<=tatement )\(\d+\)|(?<=handler )\(\d+\)")
_DIFFERS_ON_MYSQL = (
    # A table that is made anew is called by its connection's number.
    (re.compile(rb"#sql-[0-9a-f]+_[0-9a-f]+"), rb"#sql"),
    # Among a write's warnings it counts one of an earlier write to a table that does not roll
    # back, if no query read a table between them.
    (re.compile(rb"(?s)..(.(?:Records|Rows matched): .* Warnings: )\d+\Z"), rb"\0\0\1"),
)
# Version 9 tells that the session's state changed, without what, as after a statement that failed.
_NOTHING_TRACKED = re.compile(rb"(?s).{4}[\0\xfe]\0\0.[\x40-\x7f]..\0\0")
# And of some transactions' state though not asked to, such as those begun anew.
_TRANSACTION_STATE = re.compile(rb"\x05\t\x08[A-Za-z_]{8}\Z")
# MariaDB may tell otherwise at each execution of a statement whether a column can be NULL.
_NOT_NULL = re.compile(rb"(?s)(\A....\x03def.*\x0c.{7})(.)(?=..\0\0\Z)")
_SPENDING = ("TEMPORARY", "p_temp", "TRIGGER", "PROCEDURE", "FUNCTION", "EXECUTE", "f_write")
_GROUPS = re.compile(r"GROUP BY|DISTINCT|UNION|\.execute|\.cursor")
_SHRINKING_S = 120
_REPEATED = 6
_END_OF_LOG = 4_000
_OK_BYTES = 10  # at least, with the header
# No numbers of its own: of a row that is ignored, MySQL may take the number into account or not.
_FILE = b"\\N\ta\tb\n\\N\t\\N\tc\n"
_GLOBALS = {
    # A session that waits for another's lock gives up after a second: none would end.
    "innodb_lock_wait_timeout": 1,
    "lock_wait_timeout": 1,
    # The plan may show in the columns' flags: it must not hang on when a thread counts the rows.
    "innodb_stats_auto_recalc": 0,
}


@dataclass(frozen=True, slots=True)
class Step:
    """What a session does: a statement, or after a dot a command of the protocol.

    `{db}` and `{user}` stand for names of the twin's own.
    """

    session: int
    text: str
    name: str = ""
    values: tuple[Parameter, ...] = ()

    def __str__(self) -> str:
        values = f" {list(self.values)}" if self.text.startswith(_EXECUTE) else ""
        name = f" {self.name}" if self.name else ""
        return f"{self.session}  {self.text}{values}{name}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The step at which twins differ, and both answers."""

    at: int
    direct: str
    proxied: str


@dataclass(slots=True)
class Count:
    """What a run did."""

    scripts: int = 0
    steps: int = 0
    reads: int = 0
    hits: int = 0
    deaths: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        share = self.hits / self.reads if self.reads else 0
        return (
            f"{self.scripts} scripts, {self.steps} steps, {self.reads} of them queries,"
            f" {self.hits} hits ({share:.0%} of the queries), the server died {self.deaths} times,"
            f" {self.seconds:.0f} s"
        )


class _Trusting(PrivateSqlcache):
    """See `trusting`."""

    def command(self) -> list[str]:
        interpreter, module, _, *options = super().command()
        return [interpreter, module, trusting.__name__, *options]


class Stage(AbstractContextManager["Stage"]):
    """A SQL server, a memcached and two sqlcaches, with these settings."""

    def __init__(self, upstream: PrivateSqlServer, folder: Path, **settings: object) -> None:
        self.upstream = upstream
        self.folder = folder
        self.settings = settings
        self.count = Count()
        self._scripts = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for name in _GLOBALS:
            ((before,),) = self.upstream.sql(f"SELECT @@GLOBAL.{name}")
            self._stack.callback(self.upstream.sql, f"SET GLOBAL {name} = {before}")
        self._set_globals()
        memcached = self._stack.enter_context(PrivateMemcached(self.folder / "memcached"))
        self.proxies = [
            self._stack.enter_context(
                _Trusting(
                    self.folder / f"sqlcache-{number}",
                    self.upstream.service_url,
                    (memcached.address,),
                    **PATIENT,
                    **self.settings,
                )
            )
            for number in range(2)
        ]
        self.upstream.sql(
            f"DROP USER IF EXISTS {_ACCOUNT}; CREATE USER {_ACCOUNT};"
            f"GRANT ALL ON *.* TO {_ACCOUNT} WITH GRANT OPTION"
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _set_globals(self) -> None:
        for name, value in _GLOBALS.items():
            self.upstream.sql(f"SET GLOBAL {name} = {value}")

    def revive(self) -> str:
        """Starts the SQL server again, which has died; gives the end of its log."""
        log = self.upstream.log_text()
        self.upstream.restart()
        self._set_globals()
        return log[-_END_OF_LOG:]

    def hits(self) -> int:
        return int(sum(proxy.metrics()["sqlcache_hits_total"] for proxy in self.proxies))

    def row_writes(self) -> dict[str, int]:
        """What writes that may touch known rows alone were told by, and how often."""
        return self._by_label("sqlcache_row_writes_total")

    def probes(self) -> dict[str, int]:
        """What became of questions to MySQL which rows writes touch."""
        return self._by_label("sqlcache_probes_total")

    def bypasses(self) -> dict[str, int]:
        """Why reads went to the server, and how often."""
        return self._by_label("sqlcache_bypasses_total")

    def verified(self) -> dict[str, int]:
        """How stored answers compare with the server's, where it was asked as well."""
        return self._by_label("sqlcache_verified_total")

    def _by_label(self, metric: str) -> dict[str, int]:
        """What both sqlcaches counted, the most first."""
        found: Counter[str] = Counter()
        for proxy in self.proxies:
            for name, value in proxy.metrics().items():
                if name.startswith(metric):
                    found[name.split('"')[1]] += int(value)
        return dict(found.most_common())

    def log_text(self) -> str:
        return "\n".join(proxy.log_text() for proxy in self.proxies)

    def next_name(self) -> str:
        """A name no script has had, as long as any other."""
        self._scripts += 1
        return f"fz{self._scripts:05}"


class Twin:
    """One schema and its sessions."""

    def __init__(self, stage: Stage, name: str, letter: str, *, proxied: bool) -> None:
        self.stage = stage
        self.db = name + letter
        self.user = f"u{name}{letter}"
        self._addresses: Sequence[Address] = stage.proxies if proxied else [stage.upstream]
        self._on_mariadb = isinstance(stage.upstream, PrivateMariaDB)
        self._sessions: dict[int, Wire] = {}

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def named(self, text: str) -> str:
        return text.replace("{db}", self.db).replace("{user}", self.user)

    def session(self, number: int) -> Wire:
        """The session of that number, which begins when it is first asked for."""
        known = self._sessions.get(number)
        if known is None:
            known = self._sessions[number] = self.begin(number)
        return known

    def begin(self, number: int) -> Wire:
        """A new one: the last is of the limited account, only odd ones know new capabilities."""
        address = self._addresses[number % len(self._addresses)]
        user = self.user if number == SESSIONS - 1 else _ACCOUNT
        schema = self.db if number else ""
        wire = Wire(address, user, schema, "new" if number % 2 else "old")
        if self._on_mariadb:
            # Its new sessions begin with the FOUND_ROWS() and errors that some earlier one left.
            wire.receive(wire.send(Command.QUERY, b"SELECT 1 FROM information_schema.ENGINES"))
        return wire

    def send(self, step: Step) -> int:
        """Sends what a step says; gives what `receive` wants to know."""
        wire = self.session(step.session)
        match step.text.partition(" "):
            case (".prepare", _, text):
                return wire.send(Command.STMT_PREPARE, self.named(text).encode())
            case (".execute" | ".cursor" as how, _, _):
                execution = wire.execution(step.name, step.values, cursor=how == _CURSOR)
                return wire.send(Command.STMT_EXECUTE, execution)
            case (".fetch", _, _):
                rows = (2).to_bytes(4, "little")
                return wire.send(Command.STMT_FETCH, wire.number(step.name) + rows)
            case (".reset_statement", _, _):
                return wire.send(Command.STMT_RESET, wire.number(step.name))
            case (".use", _, schema):
                return wire.send(Command.INIT_DB, self.named(schema).encode())
            case (".ping", _, _):
                return wire.send(Command.PING, b"")
            case (".reset", _, _):
                wire.forget()
                return wire.send(Command.RESET_CONNECTION, b"")
            case (".fields", _, table):
                return wire.send(Command.FIELD_LIST, self.named(table).encode() + b"\0")
            case (".option", _, value):
                return wire.send(Command.SET_OPTION, int(value).to_bytes(2, "little"))
            case _:
                return wire.send(Command.QUERY, self.named(step.text).encode())

    def receive(self, step: Step, command: int) -> Answer:
        """The answer to it, with names as in scripts."""
        wire = self.session(step.session)
        answer = wire.receive(command, _FILE)
        if command == Command.STMT_PREPARE:
            wire.remember(step.name, answer)
        answer = self._neutral(answer)
        if command == Command.STMT_EXECUTE and self._on_mariadb:
            packets = (_NOT_NULL.sub(_nullable, packet) for packet in answer.packets)
            return replace(answer, packets=tuple(packets))
        return answer

    def alone(self, step: Step) -> Answer:
        """Does what is more than one question and one answer."""
        verb, _, rest = step.text.partition(" ")
        if verb == ".again":
            self.session(step.session).close()
            self._sessions[step.session] = self.begin(step.session)
            return Answer((), None)
        user = self.user if rest == "limited" else _ACCOUNT
        try:
            return self._neutral(self.session(step.session).change_user(user, self.db))
        except PermissionError as refused:
            return self._neutral(Answer((bytes(4) + str(refused).encode(),), None))

    def _neutral(self, answer: Answer) -> Answer:
        packets = tuple(map(self._without_names, answer.packets))
        return Answer(packets, answer.status, answer.prepared)

    def _without_names(self, packet: bytes) -> bytes:
        plain = packet
        for name in (self.user, self.db):  # the user's holds the schema's
            plain = plain.replace(name.encode(), b"-" * len(name))
        plain = _NUMBER_OF_PREPARED.sub(b"", plain)
        if not self._on_mariadb:
            plain = _without_transaction_state(plain)
            for differs, same in _DIFFERS_ON_MYSQL:
                plain = differs.sub(same, plain)
        return (len(plain) - 4).to_bytes(3, "little") + plain[3:]  # as long as it is now


def _without_transaction_state(ok: bytes) -> bytes:
    cut = _TRANSACTION_STATE.sub(b"", ok)
    for at in range(len(cut) if len(cut) < len(ok) else 0):
        if at > _OK_BYTES and ok[at] == len(ok) - at - 1:  # the length of all that is tracked
            left = len(cut) - at - 1
            return cut[:at] + bytes((left,)) + cut[at + 1 :] if left else _without_changes(cut[:at])
    return _without_changes(ok[:-1]) if _NOTHING_TRACKED.fullmatch(ok) else ok


def _without_changes(ok: bytes) -> bytes:
    """An OK without that something has changed, and without words that say nothing."""
    at = HEADER_BYTES + read_ok(ok[HEADER_BYTES:]).status_offset
    status = int.from_bytes(ok[at : at + 2], "little") & ~Status.SESSION_STATE_CHANGED
    warnings, words = ok[at + 2 : at + 4], ok[at + 4 :]
    return ok[:at] + status.to_bytes(2, "little") + warnings + (b"" if words == b"\0" else words)


def _nullable(definition: re.Match[bytes]) -> bytes:
    return definition[1] + bytes((definition[2][0] & ~1,))


_ALONE = (".again", ".change_user")
_NO_ANSWER = Answer((bytes(4) + b"no answer in time",), None)


class Run:
    """Twins at the beginning of a script."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        name = stage.next_name()
        self.twins = (Twin(stage, name, "a", proxied=False), Twin(stage, name, "b", proxied=True))
        self._statuses: dict[int, int] = {}
        self._gone: set[int] = set()

    def __enter__(self) -> Self:
        for twin in self.twins:
            self.stage.upstream.sql(
                f"CREATE DATABASE {twin.db} CHARACTER SET utf8mb4; CREATE USER {twin.user};"
                f"CREATE ROLE {twin.user}r;"
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {twin.db}.* TO {twin.user}"
            )
        return self

    def __exit__(self, *_: object) -> None:
        for twin in self.twins:
            twin.close()
            self.stage.upstream.sql(
                f"DROP DATABASE IF EXISTS {twin.db}; DROP DATABASE IF EXISTS {twin.db}x;"
                f"DROP USER IF EXISTS {twin.user}; DROP ROLE IF EXISTS {twin.user}r"
            )

    def in_transaction(self, session: int) -> bool:
        """Whether the server said that the session is in one."""
        status = self._statuses.get(session, Status.AUTOCOMMIT)
        return bool(status & Status.IN_TRANS)

    def do(self, step: Step) -> tuple[Answer, Answer] | None:
        """Both answers to a step, or None where it has none."""
        if step.session in self._gone:
            return None
        if step.text.startswith(_ALONE):
            direct, proxied = (twin.alone(step) for twin in self.twins)
            self._statuses.pop(step.session, None)
            return direct, proxied
        commands = [twin.send(step) for twin in self.twins]
        answers = [
            _received(twin, step, command)
            for twin, command in zip(self.twins, commands, strict=True)
        ]
        if any(answer.waited_for_a_lock for answer in answers):
            # A hit takes no lock on its table: from here on the twins are not alike.
            self._gone.update(range(SESSIONS))
            return None
        status = answers[0].status
        if status is not None:
            self._statuses[step.session] = status
        if any(not answer.packets or answer == _NO_ANSWER for answer in answers):
            self._gone.add(step.session)
        return answers[0], answers[1]


def _received(twin: Twin, step: Step, command: int) -> Answer:
    try:
        return twin.receive(step, command)
    except (EOFError, ConnectionError):
        return Answer((), None)
    except TimeoutError:
        return _NO_ANSWER


def difference(step: Step, at: int, answers: tuple[Answer, Answer] | None) -> Difference | None:
    """How the answers to a step differ, if they do."""
    if answers is None:
        return None
    direct, proxied = answers
    is_ordered = " ORDER BY id" in step.text
    grouped = _GROUPS.search(step.text) is not None
    if direct.same_as(proxied, ordered=is_ordered, grouped=grouped):
        return None
    return Difference(at, direct.shown(), proxied.shown())


def replay(stage: Stage, steps: Sequence[Step]) -> Difference | None:
    """Runs a script that is known; the first difference, if any."""
    with Run(stage) as run:
        for at, step in enumerate(steps):
            found = difference(step, at, run.do(step))
            if found is not None:
                return found
    return None


def shrunk(stage: Stage, steps: Sequence[Step]) -> list[Step]:
    """The script without what its difference does not need."""
    kept = list(steps)
    size = max(1, len(kept) // 2)
    deadline = time.monotonic() + _SHRINKING_S
    while True:
        at = 0
        while at < len(kept):
            tried = kept[:at] + kept[at + size :]
            found = replay(stage, tried) if time.monotonic() < deadline else None
            if found is not None:
                kept = tried[: found.at + 1]
            else:
                at += size
        if size == 1:
            return kept
        size //= 2


@dataclass(slots=True)
class Author:
    """Writes a script step by step, knowing what the server said so far."""

    random: Random
    run: Run
    schema: Schema = field(init=False)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    """Repeated where they name rows: what one touches is known when its like was seen."""
    prepared: dict[int, list[str]] = field(default_factory=dict)
    locked_by: int | None = None

    def __post_init__(self) -> None:
        rows = bool(self.run.stage.settings.get("cache__row_tags"))
        self.schema = Schema(self.random, rows)
        self._restless = self.random.choice([0.1, 0.3, 1.0])
        self.statements = Statements(self.random, self.schema)

    statements: Statements = field(init=False)
    _restless: float = 1.0
    """The share of steps that may be something else than one of the script's reads."""
    _cursor: str = ""
    _cursors_only: set[tuple[int, str]] = field(default_factory=set)
    """Sessions' prepared statements that may only be executed with a cursor. Where that is how
    MySQL 9.7 runs one first, it never ends its answer to an execution without."""
    _spent: set[int] = field(default_factory=set)
    _last: dict[int, str] = field(default_factory=lambda: defaultdict(str))

    def steps(self, count: int) -> Iterator[Step]:
        """The steps of a script; the caller does each before it asks for the next."""
        yield Step(0, ".use {db}")
        for text in self.schema.creation():
            yield Step(0, text)
        yield Step(0, ".again")
        yield Step(0, ".use {db}")
        if self.schema.rows:
            for table in self.schema.tables:
                if not table.is_view:
                    yield from (Step(0, text) for text in self.statements.telling_apart(table))
        for _ in range(self.random.randint(3, 7)):
            self.reads.append(self.statements.read())
        for _ in range(count):
            step = self._next()
            self._last[step.session] = step.text
            yield step

    def _next(self) -> Step:
        session = self._session()
        if self._is_spent(session) and self.locked_by is None:
            self._spent.discard(session)
            return Step(session, ".again")
        chance = self.random.random() * (100 if self.random.random() < self._restless else 58)
        if self.schema.rows and self.random.random() < 0.2 and session < SESSIONS - 1:
            return Step(session, self._write())
        others_busy = any(
            self.run.in_transaction(each) for each in range(SESSIONS) if each != session
        )
        if chance < 58:
            return Step(session, self._read())
        if chance < 63:
            return Step(session, self.random.choice(PROBES))
        if chance < 68:
            ends = self.run.in_transaction(session) and self.random.random() < 0.4
            return Step(session, "COMMIT" if ends else self.random.choice(TRANSACTIONS))
        if chance < 72:
            return Step(session, self._setting())
        if chance < 82:
            return self._prepared_step(session)
        if chance < 85:
            return self._command(session)
        if others_busy and self.random.random() < 0.9:  # else most would wait for a lock
            return Step(session, self._read())
        if chance < 94:
            return Step(session, self._write())
        if chance < 96:
            return Step(session, self.statements.unshared())
        if chance < 98:
            return Step(session, self.statements.definition())
        return self._rare(session, busy=others_busy)

    def _session(self) -> int:
        if self.locked_by is not None:
            return self.locked_by
        return self.random.randrange(SESSIONS)

    def _is_spent(self, session: int) -> bool:
        """Whether it has bypassed the cache for a while: a temporary table lasts for a session,
        and what looks like several statements, or one that fails, may have created some."""
        if any(word in self._last[session] for word in _SPENDING):
            self._spent.add(session)
        return session in self._spent and self.random.random() < 0.1

    def _read(self) -> str:
        if self.random.random() < 0.12:
            self.reads[self.random.randrange(len(self.reads))] = self.statements.read()
        text = self.random.choice(self.reads)
        if self.schema.rows and self.random.random() < 0.3:
            text = self.statements.of_other_rows(text)
        return self.statements.varied(text) if self.random.random() < 0.3 else text

    def _write(self) -> str:
        if not self.schema.rows:
            return self.statements.write()
        if len(self.writes) < _REPEATED or self.random.random() < 0.1:
            self.writes.append(self.statements.write())
        self.writes = self.writes[-_REPEATED:]
        return self.statements.of_other_rows(self.random.choice(self.writes))

    def _setting(self) -> str:
        scope = self.random.choice(["", "", "", "SESSION "])
        setting = self.random.choice(SETTINGS)
        plain = scope and setting[0] not in "@N" and not setting.startswith(("SESSION", "CHAR"))
        return f"SET {scope if plain else ''}{setting}"

    def _prepared_step(self, session: int) -> Step:
        known = self.prepared.setdefault(session, [])
        random = self.random
        if not known or random.random() < 0.2:
            name = f"s{random.randint(0, 2)}"
            if name not in known:
                known.append(name)
            self._cursors_only.discard((session, name))
            again = random.random() < 0.3
            text = random.choice(self.reads) if again else self.statements.parameterised()
            return Step(session, f"{_PREPARE} {text}", name)
        values: list[Parameter] = [1, 2, 3, "1", "a", None, 2.5, -1, "é", "-2", "1.5"]
        chosen = tuple(random.choice(values) for _ in range(3))
        if random.random() < 0.6:
            chosen = (1, 2, 3)
        if self._last[session] == _CURSOR:
            return Step(session, ".fetch", self._cursor)
        how = random.choice([_EXECUTE] * 9 + [_CURSOR, ".reset_statement"])
        self._cursor = random.choice(known)
        if how == _EXECUTE and (session, self._cursor) in self._cursors_only:
            how = _CURSOR
        if how == _CURSOR and not isinstance(self.run.stage.upstream, PrivateMariaDB):
            self._cursors_only.add((session, self._cursor))
        return Step(session, how, self._cursor, chosen)

    def _command(self, session: int) -> Step:
        texts = [
            *(".use {db}", ".use {db}x", ".use {db}", ".ping", ".reset", ".again", ".again"),
            *(".change_user app", ".change_user limited", f".fields {self.schema.table().name}"),
            *(".option 0", ".option 1", "USE {db}", "USE {db}x", "SET ROLE {user}r"),
            *("SET ROLE NONE", "SET ROLE ALL", ".option 0"),
        ]
        return Step(session, self.random.choice(texts))

    def _rare(self, session: int, *, busy: bool) -> Step:
        random, table = self.random, self.schema.base_table()
        if self.locked_by is not None:
            self.locked_by = None
            return Step(session, "UNLOCK TABLES")
        match random.randint(0, 4):
            case 0 if not busy:
                self.locked_by = session
                how = random.choice(["READ", "WRITE", "READ LOCAL"])
                return Step(session, f"{_OWNERS_ONLY} {table.name} {how}")
            case 1 | 2:
                return Step(session, f"LOAD DATA LOCAL INFILE 'x' IGNORE INTO TABLE {table.name}")
            case _:
                return Step(random.randrange(SESSIONS - 1), self.statements.privilege())


def run_script(stage: Stage, seed: str, steps: int) -> tuple[list[Step], Difference | None]:
    """Writes and runs one script; all its steps, and how the twins differ after the last."""
    done: list[Step] = []
    count = stage.count
    hits = stage.hits()
    with Run(stage) as run:
        for step in Author(Random(seed), run).steps(steps):
            done.append(step)
            count.steps += 1
            answers = run.do(step)
            found = difference(step, len(done) - 1, answers)
            count.reads += answers is not None and len(answers[0].packets) > 1
            if found is not None:
                break
        else:
            found = None
    count.scripts += 1
    count.hits += stage.hits() - hits
    return done, found


def report(stage: Stage, seed: str, steps: Sequence[Step], found: Difference) -> str:
    """A difference, as small as it gets, as a script to read."""
    if replay(stage, steps) is None:
        small = list(steps)
        title = "not seen again when repeated"
    else:
        small = shrunk(stage, steps)
        title = "shrunk"
        found = replay(stage, small) or found
    script = "\n".join(map(str, small))
    return (
        f"seed {seed}, {stage.upstream.name}, {title}:\n{script}\n"
        f"  directly:\n{found.direct}\n  through sqlcache:\n{found.proxied}\n"
    )


def fuzz(stage: Stage, seed: int, deadline_s: float, *, steps: int = 300) -> list[str]:
    """Runs scripts until the deadline; reports of what differed. That the server itself dies of
    a script is told, and no difference."""
    reports = []
    began = time.monotonic()
    number = 0
    while time.monotonic() - began < deadline_s:
        name = f"{seed}.{number}"
        try:
            done, found = run_script(stage, name, steps)
            if found is not None:
                reports.append(report(stage, name, done, found))
                print(reports[-1], flush=True)
        except pymysql.OperationalError:
            print(f"seed {name}: {stage.upstream.name} died; its log ends:\n{stage.revive()}")
            stage.count.deaths += 1
        number += 1
    stage.count.seconds += time.monotonic() - began
    return reports


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares sqlcache with MySQL on random scripts.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--server", choices=("mariadb", "mysql"), default="mariadb")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--script", type=int, help="run only the script of this number")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--shadow", action="store_true", help="nothing is served from the cache")
    parser.add_argument("--row-tags", action="store_true", help="answers are told apart by rows")
    parser.add_argument("--verify", type=int, default=0, help="per cent of the hits")
    options = parser.parse_args()
    kind = PrivateMariaDB if options.server == "mariadb" else PrivateMySQL
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        upstream = stack.enter_context(kind(Path(folder) / "upstream"))
        settings: dict[str, object] = {
            "cache__verify_percent": options.verify,
            "cache__row_tags": options.row_tags,
        }
        if options.shadow:
            settings["cache__mode"] = "shadow"
        stage = stack.enter_context(Stage(upstream, Path(folder), **settings))
        print(f"seed {options.seed}", flush=True)
        if options.script is not None:
            name = f"{options.seed}.{options.script}"
            done, found = run_script(stage, name, options.steps)
            reports = [report(stage, name, done, found)] if found is not None else []
            print(*reports)
        else:
            reports = fuzz(stage, options.seed, options.minutes * 60, steps=options.steps)
        print(f"{options.server}: {stage.count}; {len(reports)} differences")
        print(f"writes by rows: {stage.row_writes()}; questions: {stage.probes()}")
        print(f"bypasses: {stage.bypasses()}")
        print(f"verified: {stage.verified()}")
        if "Traceback" in stage.log_text():
            print(stage.log_text())
    return bool(reports)


if __name__ == "__main__":
    sys.exit(main())
