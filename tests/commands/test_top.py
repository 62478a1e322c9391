"""`sqlcache top` beside a real proxy, at a terminal that is no screen."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from sqlcache.cli import main
from sqlcache.commands.top_page import TopPage
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from sqlcache.settings import Settings
from sqlcache.settings.sources import from_arguments
from tests.conftest import ProxyFactory

READ = "SELECT v FROM t WHERE id = ?"
RANDOM = "SELECT RAND( )"
PATIENCE_S = 40


@pytest.fixture
def served(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory
) -> PrivateSqlcache:
    return proxy(mariadb, memcached)


def settings_of(served: PrivateSqlcache) -> Settings:
    nobody = {"upstream.url": "mysql://nobody@127.0.0.1", "memcached.nodes": "memory"}
    return from_arguments({**nobody, "admin.listen": f"127.0.0.1:{served.admin_port}"})


def run(served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str, *statements: str) -> None:
    login = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with served.connect(**login) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def text(page: TopPage, part: str) -> str:
    return str(page.query_one(part, Static).content)


def cells(page: TopPage, part: str) -> list[list[str]]:
    table = page.query_one(part, DataTable)
    return [list(map(str, table.get_row_at(n))) for n in range(table.row_count)]


async def seen(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, [str(part.content) for part in pilot.app.query(Static)]
        await pilot.pause(0.05)


async def test_it_shows_figures_statements_and_nodes_and_sorts_by_keys(
    served: PrivateSqlcache, mariadb: PrivateMariaDB, memcached: PrivateMemcached, schema: str
) -> None:
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", schema)
    run(served, mariadb, schema, *["SELECT v FROM t WHERE id = 1"] * 10, *["SELECT RAND()"] * 3)
    page = TopPage(settings_of(served))
    async with page.run_test(size=(160, 40)) as pilot:
        await seen(pilot, lambda: len(cells(page, "#statements")) > 1)
        summary = text(page, "#summary")
        assert f"at 127.0.0.1:{served.admin_port}" in summary
        assert ", ready, 1 process(es)" in summary
        first = cells(page, "#statements")[0]
        assert (first[0], first[1], first[2], first[-1]) == ("10", "9", "1", READ)
        await seen(pilot, lambda: READ in text(page, "#detail"))  # the cursor is at the first
        (node,) = cells(page, "#nodes")
        assert node[:2] == [memcached.address, "reached"]

        await pilot.press("p")
        await seen(pilot, lambda: cells(page, "#statements")[0][-1] == RANDOM)
        assert cells(page, "#statements")[0][3] == "3"
        await seen(pilot, lambda: "calls RAND(), which is" in text(page, "#detail"))
        await pilot.press("down")
        await seen(pilot, lambda: RANDOM not in text(page, "#detail"))

        before = cells(page, "#statements")
        run(served, mariadb, schema, *["SELECT v FROM t WHERE id = 1"] * 90)
        await pilot.press("h")
        await seen(pilot, lambda: cells(page, "#statements")[0][1] == "99")
        assert cells(page, "#statements") != before
        memcached.kill()
        await seen(pilot, lambda: cells(page, "#nodes")[0][1] not in ("reached", ""))
        await seen(pilot, lambda: memcached.address in text(page, "#summary"))
        await pilot.press("q")
    assert page.return_code == 0


def shares_and_pace(page: TopPage) -> list[str]:
    """Of hits now and since the start, and statements a second."""
    told = re.search(r"hits (\S+) now, (\S+) since the start; (\S+) st", text(page, "#summary"))
    return list(told.groups()) if told else ["-", "-", "-"]


async def test_hits_and_pace_are_those_of_the_last_seconds(
    served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str
) -> None:
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", schema)
    run(served, mariadb, schema, *["SELECT RAND()"] * 100)
    page = TopPage(settings_of(served))
    async with page.run_test() as pilot:
        await seen(pilot, lambda: shares_and_pace(page)[1] == "0.0%")
        run(served, mariadb, schema, *["SELECT v FROM t WHERE id = 1"] * 300)

        def are_right() -> bool:
            """A poll that was under way may have been answered amid the three hundred."""
            now, since_the_start, pace = shares_and_pace(page)
            if "-" in (now, since_the_start, pace):
                return False
            right = float(now.rstrip("%")) > 90 and 50 < float(since_the_start.rstrip("%")) < 80
            return right and int(pace) >= 20

        await seen(pilot, are_right)
        await seen(pilot, lambda: shares_and_pace(page)[::2] == ["-", "0"])
        assert 50 < float(shares_and_pace(page)[1].rstrip("%")) < 80


async def test_a_sqlcache_that_is_gone_is_said_and_shown_again_when_it_is_back(
    served: PrivateSqlcache,
) -> None:
    page = TopPage(settings_of(served))
    async with page.run_test() as pilot:
        await seen(pilot, lambda: ", ready, " in text(page, "#summary"))
        served.stop()
        await seen(pilot, lambda: "nobody answers" in text(page, "#summary"))
        served.restart()
        await seen(pilot, lambda: ", ready, " in text(page, "#summary"))


async def test_a_statement_cannot_command_the_terminal(
    served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str
) -> None:
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", schema)
    run(served, mariadb, schema, *["SELECT v AS `\x1b[31m[red]` FROM t"] * 5)
    page = TopPage(settings_of(served))
    async with page.run_test(size=(160, 40)) as pilot:
        await seen(pilot, lambda: len(cells(page, "#statements")) > 0)
        assert r"`\x1b[31m[red]`" in cells(page, "#statements")[0][-1]
        await seen(pilot, lambda: r"`\x1b[31m[red]`" in text(page, "#detail"))


def test_at_a_real_terminal_q_leaves_it(served: PrivateSqlcache) -> None:
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "sqlcache", "top"]
    command += ["--admin", f"127.0.0.1:{served.admin_port}"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"}
    with subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True
    ) as process:
        os.close(its)
        assert left_by_q(ours, process) == 0
    os.close(ours)


def left_by_q(terminal: int, process: subprocess.Popen[bytes]) -> int:
    """The exit code of a page that has shown its figures and is told to end."""
    said = b""
    while b"statements/s" not in said:
        said += os.read(terminal, 65536)
    os.write(terminal, b"q")
    return drained(terminal, process)


def drained(terminal: int, process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process that may have more to say than a terminal holds."""
    while process.poll() is None:
        try:
            os.read(terminal, 65536)
        except OSError:  # it has closed its side
            break
    return process.wait(PATIENCE_S)


def test_without_a_terminal_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == (
        "sqlcache: top: expected a terminal; sqlcache stats --statements prints the list anywhere\n"
    )


def test_without_textual_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sqlcache.commands.top_page")
    for name in [name for name in sys.modules if name.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    assert main(["top", "--admin", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == (
        f"sqlcache: top: textual is not installed: {sys.executable} -m pip install 'textual>=8'\n"
    )
