"""Every log line parses, in logfmt and as JSON, whatever is in it, and none tells a secret."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, wait_until
from sqlcache.process import logs
from tests.conftest import ProxyFactory
from tests.costs import grows_linearly
from tests.process.test_workers import workers as children

PACKAGE = Path(logs.__file__).parents[1]
METHODS = ("debug", "info", "warning", "error", "critical", "exception")
_PAIR = re.compile(r"([a-z_]+)=(?:(\"(?:[^\"\\]|\\.)*\")|([!#-<>-\[\]-~]+))(?: |$)")


def read_logfmt(line: str) -> dict[str, str]:
    """A line's fields. Raises: ValueError where it is not logfmt from end to end."""
    fields: dict[str, str] = {}
    at = 0
    while at < len(line):
        pair = _PAIR.match(line, at)
        if pair is None or pair[1] in fields:
            raise ValueError(f"no logfmt from {at} on: {line!r}")
        fields[pair[1]] = pair[3] if pair[2] is None else json.loads(pair[2])
        at = pair.end()
    return fields


def read_json(line: str) -> dict[str, str]:
    fields = json.loads(line)
    assert isinstance(fields, dict)
    return {key: str(value) for key, value in fields.items()}


READ: Mapping[str, Callable[[str], dict[str, str]]] = {"logfmt": read_logfmt, "json": read_json}


@pytest.fixture(params=["logfmt", "json"])
def form(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def line_of(form: str, message: str, *arguments: object, **options: Any) -> str:
    name = options.pop("name", "sqlcache.x")
    record = logging.LogRecord(name, logging.INFO, "", 0, message, arguments, None)
    record.exc_info = options.pop("exc_info", None)
    return logs._Formatter(form).format(record)


def said(form: str, message: str, *arguments: object, **options: Any) -> dict[str, str]:
    """A record's fields, less when and by whom."""
    line = line_of(form, message, *arguments, **options)
    assert len(line.splitlines()) == 1
    fields = READ[form](line)
    head = [fields.pop(key) for key in ("time", "level", "part", "pid")]
    assert head[1] == "info"
    return fields


def caught(error: BaseException) -> Any:
    try:
        raise error
    except BaseException as raised:
        return type(raised), raised, raised.__traceback__


def test_the_words_are_the_event_and_what_follows_are_fields(form: str) -> None:
    assert said(form, "draining timeout_s=%s", 1.5) == {"event": "draining", "timeout_s": "1.5"}
    assert said(form, "all is well") == {"event": "all is well"}
    assert said(form, "%s", "words of another") == {"event": "words of another"}
    assert said(form, "others: %s node=%s why=%r", "a b", "n:1", b"x") == {
        "event": "others: a b",
        "node": "n:1",
        "why": "b'x'",
    }
    assert said(form, 'not stored reason="%s"', "a b") == {"event": "not stored", "reason": "a b"}


@given(st.text(), st.text())
def test_any_value_is_read_as_it_was_written(words: str, value: str) -> None:
    for form in READ:
        fields = said(form, "%s error=%s", words, value)
        assert fields == {"event": words, "error": value}, form


def test_of_a_value_as_long_as_others_like_the_begin_is_told(form: str) -> None:
    long = "y" * 1_000_000
    told = said(form, "%s error=%s node=%s", long, long, "n:1")
    assert told["node"] == "n:1"
    for key in ("event", "error"):
        assert re.fullmatch(r"y{1000,20000}…", told[key]), f"{len(told[key])} characters"
    assert len(line_of(form, long, name="asyncio")) < 30_000
    assert len(line_of(form, "failed", exc_info=caught(RuntimeError(long)))) < 30_000


def test_numbers_are_numbers_in_json() -> None:
    line = line_of("json", "cut sessions=%d for_s=%s who=%s", 3, 1.5, "7")
    fields = json.loads(line)
    assert (fields["sessions"], fields["for_s"], fields["who"]) == (3, 1.5, "7")
    assert json.loads(line_of("json", "x for_s=%s", float("nan")))["for_s"] == "nan"


def test_a_traceback_is_in_the_line_of_its_event(form: str) -> None:
    error = ConnectionError("gone")
    error.__cause__ = TypeError("no such thing")
    fields = said(form, "session failed", exc_info=caught(error))
    assert fields["event"] == "session failed"
    lines = fields["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "TypeError: no such thing" in lines
    assert lines[-1] == "ConnectionError: gone"
    assert any("raise error" in line for line in lines)


def test_all_of_a_group_are_told_and_a_circle_ends(form: str) -> None:
    first, second = ValueError("one"), KeyError()
    first.__context__, second.__context__ = second, first
    fields = said(form, "x", exc_info=caught(ExceptionGroup("many", [first, second])))
    assert "ValueError: one" in fields["traceback"]
    assert "KeyError" in fields["traceback"]


SECRET = "xyzzy 1471147114"


@pytest.mark.parametrize(
    "error",
    [
        KeyError(f"SELECT '{SECRET}'".encode()),
        ValueError(f"invalid literal: {SECRET!r}"),
        ValueError(f"it doesn't know b'SELECT {SECRET}"),
        pymysql.err.ProgrammingError(1064, f"You have an error near 'x = {SECRET}' at line 1"),
        RuntimeError(f"mysql://cat:{SECRET.replace(' ', '')}@db"),
    ],
)
def test_what_an_exception_quotes_is_not_told(form: str, error: Exception) -> None:
    line = line_of(form, "failed", exc_info=caught(error))
    assert "xyzzy" not in line
    assert "1471147114" not in line
    assert type(error).__name__ in line


@pytest.mark.parametrize("word", [b"/", b"//a", b"//a@"])
def test_logins_are_looked_for_once(word: bytes) -> None:
    assert grows_linearly(lambda n: word * n, lambda text: logs.without_quotes(text.decode()))


def test_what_libraries_quote_is_not_told(form: str) -> None:
    def fails(packet: bytes) -> None:
        raise ValueError(packet)

    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    heard: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = heard.append  # type: ignore[assignment,method-assign]
    logging.getLogger("asyncio").addHandler(handler)
    loop.call_soon(fails, f"SELECT {SECRET}".encode())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    logging.getLogger("asyncio").removeHandler(handler)
    assert any("xyzzy" in record.getMessage() for record in heard), "else this shows nothing"
    for record in heard:
        line = logs._Formatter(form).format(record)
        assert "xyzzy" not in line
        assert READ[form](line)["event"]


def calls() -> Iterator[tuple[str, str, int]]:
    """Where each of sqlcache's own log calls is, its text, and how many arguments it gives."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            logger = node.func.value
            if node.func.attr in METHODS and isinstance(logger, ast.Name) and "log" in logger.id:
                text = node.args[0]
                assert isinstance(text, ast.Constant), f"{file}:{node.lineno}"
                count = sum(
                    len(each.value.elts)
                    if isinstance(each, ast.Starred) and isinstance(each.value, ast.Tuple)
                    else 1
                    for each in node.args[1:]
                )
                yield f"{file}:{node.lineno}", str(text.value), count


def test_every_call_names_its_fields_behind_its_words() -> None:
    found = list(calls())
    assert len(found) > 30, "else this shows nothing"
    for where, text, count in found:
        record = logging.LogRecord("sqlcache", 20, "", 0, text, (7,) * count, None)
        fields = logs.fields_of(record)
        assert "=" not in str(fields.pop("event")), where
        assert not set(logs.RESERVED) & set(fields), where


def test_a_call_that_is_wrong_still_says_its_words(form: str) -> None:
    assert said(form, "one of=%s", 1, 2)["event"] == "one of=%s"


LOUD = """
import asyncio, logging, sys, threading, warnings
from sqlcache.process import logs
logs.configure("debug", sys.argv[1])
class Bad:
    def __del__(self):
        raise ValueError("unraisable")
def fail():
    raise ValueError("in a thread")
logging.getLogger("library").warning("two\\nlines %s", "b\\x00b")
logging.getLogger("sqlglot").warning("SELECT secret")
warnings.warn("old\\nthing")
del [Bad()][0]
thread = threading.Thread(target=fail)
thread.start()
thread.join()
async def lose():
    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(0)
asyncio.run(lose())
logs.configure("debug", sys.argv[1])
logging.getLogger("sqlcache").info("once")
raise ValueError("the end")
"""


def test_all_that_a_process_says_is_lines(form: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOUD, form], capture_output=True, text=True, cwd=PACKAGE.parent
    )
    lines = [READ[form](line) for line in ran.stderr.splitlines()]
    assert ran.returncode == 1
    events = [line["event"] for line in lines]
    assert "two\nlines b\0b" in events
    assert any("old\nthing" in event for event in events)
    assert events.count("once") == 1, "configured twice, it says things once"
    tracebacks = "".join(line.get("traceback", "") for line in lines)
    for error in ("unraisable", "in a thread", "the end"):
        assert f"ValueError: {error}" in tracebacks
    assert "secret" not in ran.stderr


UNHEARD = """
import logging, os, sys
from sqlcache.process import logs
logs.configure("info", sys.argv[1])
log = logging.getLogger("sqlcache")
for number in range(2_000):
    log.info("the same again number=%d", number)
log.info("longer than what there is room for text=%s", "x" * 1_000_000)
os.write(1, b"done\\n")
sys.stdin.readline()
log.info("heard again")
"""


def test_nobody_waits_for_who_does_not_read_the_lines(form: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", UNHEARD, form],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PACKAGE.parent,
    ) as said:
        assert said.stdin is not None
        assert said.stdout is not None
        fallen_silent = threading.Timer(20, said.kill)
        fallen_silent.start()
        assert said.stdout.readline() == b"done\n"
        lines: list[bytes] = []
        reading = threading.Thread(target=lambda: lines.extend(said.stderr or ()))
        reading.start()
        wait_until(lambda: len(lines) > 100, 20, "what was said")
        said.stdin.write(b"\n")
        said.stdin.close()
        reading.join()
        fallen_silent.cancel()
    *before, lost, last = [
        READ[form](line.decode().rstrip()) for line in lines if b"xxx" not in line
    ]
    assert last["event"] == "heard again"
    assert 0 < int(lost["count"]) == 2_001 - len(before)
    assert [int(line["number"]) for line in before] == list(range(len(before)))


@pytest.mark.parametrize(("form", "workers"), [("logfmt", 1), ("json", 1), ("json", 2)])
def test_the_running_program_says_lines_and_no_secret(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    form: str,
    workers: int,
) -> None:
    server = proxy(mariadb, memcached, log__level="debug", log__format=form, proxy__workers=workers)
    account = {"user": mariadb.user, "password": mariadb.password}
    with suppress(pymysql.MySQLError):
        server.connect(**{**account, "password": SECRET})
    with server.connect(**account) as connection, connection.cursor() as cursor:
        for statement in (f"SELECT '{SECRET}'", f"SELEC '{SECRET}", f"SELECT {SECRET} FROM"):
            with suppress(pymysql.MySQLError):
                cursor.execute(statement)
    if workers > 1:
        os.kill(min(children(server)), signal.SIGKILL)
        wait_until(lambda: "worker ended" in server.log_text(), 20, "a worker's end")
    text = server.log_text()
    assert "xyzzy" not in text
    assert mariadb.service_password not in text
    server.stop()
    lines = [READ[form](line) for line in server.log_text().splitlines()]
    assert any(line["event"] == "draining" and line["timeout_s"] == "10.0" for line in lines)


@pytest.mark.parametrize("level", ["debug", "info"])
def test_logins_sessions_plans_and_invalidations_are_told_at_debug_alone(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    level: str,
) -> None:
    mariadb.sql("CREATE TABLE t (v VARCHAR(20))", schema)
    server = proxy(mariadb, memcached, log__level=level)
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with server.connect(**account) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM t WHERE v = '{SECRET}'")
        cursor.execute(f"SELECT RAND(), '{SECRET}', 1471147114 /* {SECRET} */")
        cursor.execute(f"INSERT INTO t VALUES ('{SECRET}')")
        connection.commit()
    server.stop()
    text = server.log_text()
    lines = {line["event"]: line for line in map(read_logfmt, text.splitlines())}
    events = ("session began", "session ended", "read planned", "pass planned", "invalidated")
    assert [event in lines for event in events] == [level == "debug"] * len(events)
    if level == "debug":
        assert lines["session began"]["user"] == mariadb.user
        assert lines["session began"]["schema"] == lines["read planned"]["schema"] == schema
        assert lines["read planned"]["statement"].startswith("SELECT COUNT")
        assert lines["invalidated"]["tags"] == f"{schema}.t"
    assert "xyzzy" not in text
    assert "1471147114" not in text
    assert mariadb.password not in text


def test_why_serve_does_not_start_is_a_line_too(form: str, tmp_path: Path) -> None:
    file = tmp_path / "sqlcache.toml"
    file.write_text(f'[log]\nformat = "{form}"\n[[rules]]\nstatement = "\'"\noff = true\n')
    command = [sys.executable, "-m", "sqlcache", "serve", "--config", str(file)]
    command += ["--upstream", "mysql://cat@127.0.0.1:1", "--memcached", "memory"]
    ran = subprocess.run(
        [*command, "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        env={"SQLCACHE_CACHE_TTL_S": "1", "PATH": "/usr/bin:/bin"},
    )
    assert ran.returncode == 2
    warning, error = (READ[form](line) for line in ran.stderr.splitlines())
    assert "did you mean SQLCACHE_CACHE__TTL_S?" in warning["reason"]
    assert error["event"] == "not started"
    assert error["reason"].startswith("rules[0].statement = ")
