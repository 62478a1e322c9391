"""The admin door's API over a real proxy, of one process and of two workers."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from pymysql.constants import COMMAND

from sqlcache.cli import main
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from tests import web
from tests.api_schemas import answer_of, wrong_with
from tests.conftest import ProxyFactory
from tests.process.test_workers import workers

FLAGS = ("--upstream", "mysql://nobody@127.0.0.1", "--memcached", "127.0.0.1:11211")
Ask = Callable[..., Any]
Run = Callable[..., Any]


def connected(proxy: PrivateSqlcache, server: PrivateMariaDB, schema: str) -> Any:
    account = {"user": server.user, "password": server.password}
    return proxy.connect(**account, database=schema, autocommit=True)


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def served(
    request: pytest.FixtureRequest,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
) -> PrivateSqlcache:
    return proxy(mariadb, memcached, proxy__workers=request.param)


@pytest.fixture
def ask(served: PrivateSqlcache) -> Ask:
    """Asks the API; whatever it answers is as its own description says."""
    base = f"http://127.0.0.1:{served.admin_port}"
    described = web.get(f"{base}/api/openapi.json").json()["paths"]

    def asked(path: str, body: Any = None) -> Any:
        answer = web.get(base + path) if body is None else web.post(base + path, json=body)
        operation = described[path.partition("?")[0]]["get" if body is None else "post"]
        assert wrong_with(answer.json(), answer_of(operation, answer.status_code)) == []
        return answer.json()

    return asked


@pytest.fixture
def run(served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str) -> Run:
    """Runs statements, each on a new connection: with workers any of them serves it."""
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", schema)
    mariadb.sql("INSERT INTO t VALUES (1, 10), (2, 20)", schema)

    def ran(*statements: str) -> Any:
        with connected(served, mariadb, schema) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    return ran


def test_the_list_says_what_is_not_cached_and_why(ask: Ask, run: Run, schema: str) -> None:
    for number in range(12):
        run(f"SELECT v FROM t WHERE id = {number % 2 + 1}", "SELECT v, RAND() FROM t")
    run("UPDATE t SET v = v + 1 WHERE id = 1")
    rows = {row["statement"]: row for row in ask("/api/statements?sort=calls")["items"]}
    read = rows["SELECT v FROM t WHERE id = ?"]
    assert (read["kind"], read["calls"], read["why_not"]) == ("read", 12, None)
    assert read["schema"] == schema
    assert read["hits"] + read["misses"] == 12
    assert read["hits"] >= 8
    random = rows["SELECT v , RAND( ) FROM t"]
    assert random["passed"] == {"calls RAND(), which is not deterministic": 12}
    assert random["mysql_mean_s"] > 0
    (explained,) = ask("/api/explain", {"sql": "SELECT RAND()"})
    assert explained["why_not"] == random["why_not"]
    assert rows["UPDATE t SET v = v + ? WHERE id = ?"]["kind"] == "write"


def test_no_list_shows_a_literal_of_any_statement(ask: Ask, run: Run) -> None:
    run(
        "CREATE USER IF NOT EXISTS listed@localhost IDENTIFIED BY 'xyzzy'",
        "DROP USER listed@localhost",
        "SET @secret = 'xyzzy', @number = 1471147114",
        "PREPARE p FROM 'SELECT 1471147114'",
    )
    rows = {row["statement"] for row in ask("/api/statements?limit=1000")["items"]}
    assert {
        "CREATE USER IF NOT EXISTS listed @localhost IDENTIFIED BY ?",
        "SET @secret = ? , @number = ?",
        "PREPARE p FROM ?",
    } <= rows
    for path in ("statements", "sessions", "events", "tables"):
        said = json.dumps(ask(f"/api/{path}?limit=1000"))
        assert "xyzzy" not in said
        assert "1471147114" not in said


def test_every_answer_is_as_the_description_of_the_api_says(
    ask: Ask, run: Run, schema: str
) -> None:
    run("SELECT v FROM t WHERE id = 1", "BEGIN", "SELECT v, RAND() FROM t")
    run("UPDATE t SET v = v + 1 WHERE id = 1")
    for what in ("statements", "tables", "sessions", "events", "nodes"):
        assert ask(f"/api/{what}")["items"] or what == "sessions"
    for what in ("summary", "settings", "openapi.json"):
        assert ask(f"/api/{what}")
    said = {"sql": "SELECT v FROM t WHERE id = 1; UPDATE t SET v = 1", "schema": schema}
    assert [each["cached"] for each in ask("/api/explain", said)] == [False, False]
    (read,) = ask("/api/explain", said | {"sql": "SELECT v FROM t WHERE id = 1"})
    assert read["key"]["settings"]
    assert read["ttl"] == [3600, "cache.ttl_s"]
    assert ask("/api/reload", {}) == {"changed": [], "need_restart": []}


def test_the_share_of_hits_is_that_of_the_reads(ask: Ask, run: Run) -> None:
    run(*["SELECT v FROM t"] * 10, "SELECT RAND()", "UPDATE t SET v = 0")
    said = ask("/api/summary")
    assert said["hits"] + said["misses"] == 10
    assert said["reads"] >= 11  # and what a driver asks when it connects
    assert said["hit_share"] == said["hits"] / said["reads"]
    assert said["passed"]["write"] == 1


def test_a_refill_that_was_in_vain_is_counted(ask: Ask, run: Run) -> None:
    read = "SELECT v FROM t WHERE id = 1"
    run(read, "UPDATE t SET v = 0 WHERE id = 2", read, "UPDATE t SET v = 0 WHERE id = 1", read)
    (row,) = ask("/api/statements?q=select v from t where")["items"]
    assert (row["fills"], row["refills_same"]) == (3, 1)


def test_what_is_flushed_is_forgotten(
    ask: Ask, run: Run, served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str
) -> None:
    for flushed in ({"table": f"{schema}.t"}, {"schema": schema}, {"all": True}):
        (before,) = run(*["SELECT v FROM t WHERE id = 2"] * 3)
        mariadb.sql("UPDATE t SET v = v + 1 WHERE id = 2", schema)  # around sqlcache
        assert run("SELECT v FROM t WHERE id = 2") == (before,)
        assert "flushed" in ask("/api/flush", flushed)
        assert run("SELECT v FROM t WHERE id = 2") == ((before[0] + 1,),)
    assert ask("/api/flush", {"table": f"{schema}.nothing"}) == {
        "error": f"there is no table {schema}.nothing"
    }
    assert ask("/api/flush", {"schema": "nothing"}) == {"error": "there is no schema nothing"}


def test_the_cache_is_switched_off_and_on(ask: Ask, run: Run, served: PrivateSqlcache) -> None:
    processes = ask("/api/summary")["workers"]
    run(*["SELECT v FROM t"] * 3)
    assert ask("/api/cache", {"enabled": False}) == {"enabled": False, "processes": processes}
    hits = ask("/api/summary")["hits"]
    run(*["SELECT v FROM t"] * 3)
    said = ask("/api/summary")
    assert (said["hits"], said["bypasses"]["switched off"]) == (hits, 3)
    assert said["cache_on"] is False
    ask("/api/cache", {"enabled": True})
    assert ask("/api/summary")["cache_on"] is True
    run(*["SELECT v FROM t"] * 3)
    assert ask("/api/summary")["hits"] >= hits + 2


def test_a_worker_that_is_started_anew_is_switched_off_as_well(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> None:
    served = proxy(mariadb, memcached, proxy__workers=2)
    base = f"http://127.0.0.1:{served.admin_port}/api"
    web.post(f"{base}/cache", json={"enabled": False}).raise_for_status()
    for worker in workers(served):
        os.kill(worker, signal.SIGKILL)

    def both_serve() -> bool:
        return bool(web.get(f"{base}/summary").json()["workers"] == 2)

    wait_until(both_serve, 20, "two workers")
    with connected(served, mariadb, schema) as connection, connection.cursor() as cursor:
        for _ in range(3):
            cursor.execute("SELECT COUNT(*) FROM information_schema.tables WHERE 1 = 0")
    assert web.get(f"{base}/summary").json()["hits"] == 0


def test_tables_tell_who_reads_and_who_writes_them(
    ask: Ask, run: Run, served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str
) -> None:
    mariadb.sql("CREATE TABLE u (id INT PRIMARY KEY)", schema)
    for _ in range(8):
        run("SELECT v FROM t WHERE id = 1", "SELECT COUNT(*) FROM t JOIN u USING (id)")
    run(*["UPDATE t SET v = v + 1"] * 3, "BEGIN", "INSERT INTO t VALUES (3, 30)", "COMMIT")
    ask("/api/flush", {"table": f"{schema}.u"})
    time.sleep(1.1)  # what was asked a moment ago is told again
    rows = {row["table"]: row for row in ask(f"/api/tables?sort=writes&q={schema}.")["items"]}
    t, u = rows[f"{schema}.t"], rows[f"{schema}.u"]
    assert (t["hits"] + t["misses"], u["hits"] + u["misses"]) == (16, 8)
    assert t["hits"] >= 12
    assert t["fills"] == t["misses"] >= 2
    assert t["writes"] == {"proxy": 4, "api": 0, "flush": 0, "binlog": 0}
    assert t["invalidations"] == 4
    assert u["writes"] == {"proxy": 0, "api": 0, "flush": 1, "binlog": 0}
    assert 0 < t["last_write_s_ago"] < t["read_s_ago"] < 60
    statements = ask("/api/statements?q=select")["items"]
    assert sum(row["hits"] for row in statements if "FROM t" in row["statement"]) == t["hits"]


def test_sessions_tell_who_they_are_and_why_they_have_no_hits(
    ask: Ask, run: Run, served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str
) -> None:
    run("SELECT v FROM t WHERE id = 1471147114")
    with (
        connected(served, mariadb, schema) as reader,
        connected(served, mariadb, schema) as writer,
        connected(served, mariadb, schema) as sleeper,
    ):
        for _ in range(3):
            reader.cursor().execute("SELECT v FROM t WHERE id = 1471147114")
        writer.cursor().execute("BEGIN")
        writer.cursor().execute("UPDATE t SET v = 1471147114")
        sleeper._execute_command(COMMAND.COM_QUERY, "SELECT SLEEP(100)")
        time.sleep(1.5)

        def told() -> tuple[dict[str, Any], list[dict[str, Any]]]:
            said = ask("/api/sessions?sort=id")
            rows = {row["id"]: row for row in said["items"]}
            return said, [rows.get(each.thread_id(), {}) for each in (reader, writer, sleeper)]

        wait_until(lambda: all(told()[1]) and told()[1][2].get("state") == "busy", 20, "the query")
        said, rows = told()
        idle, amid, busy = rows
        assert said["total"] >= 3
        mariadb.sql(f"KILL {sleeper.thread_id()}")
    assert (idle["user"], idle["schema"], idle["state"]) == (mariadb.user, schema, "idle")
    assert idle["statement"] == "SELECT v FROM t WHERE id = ?"
    assert (idle["cacheable"], idle["why_not"], idle["in_transaction"]) == (True, "", False)
    assert 1 < idle["idle_s"] <= idle["connected_s"] < 60
    assert idle["address"].startswith("127.0.0.1:")
    assert (amid["cacheable"], amid["in_transaction"]) == (False, True)
    assert amid["why_not"].startswith("in a transaction that has written")
    assert (amid["state"], amid["statement"]) == ("idle", "UPDATE t SET v = ?")
    assert (busy["state"], busy["statement"], busy["idle_s"]) == ("busy", "SELECT SLEEP( ? )", 0)
    assert "1471147114" not in str(said)
    processes = set(workers(served)) or {served.pid}
    assert {row["pid"] for row in rows} <= processes


def test_events_tell_what_has_happened_also_where_the_log_does_not(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> None:
    served = proxy(mariadb, memcached, proxy__workers=2, log__level="warning")
    base = f"http://127.0.0.1:{served.admin_port}/api"
    mariadb.sql("CREATE TABLE t (v INT)", schema)
    for path, body in (
        ("flush", {"table": f"{schema}.t"}),
        ("cache", {"enabled": False}),
        ("reload", {}),
    ):
        web.post(f"{base}/{path}", json=body).raise_for_status()
    with pytest.raises(pymysql.MySQLError):
        served.connect(user=mariadb.user, password="wrong 1471147114")
    with connected(served, mariadb, schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE PROCEDURE p(x TEXT) BEGIN PREPARE s FROM x; EXECUTE s; END")
        cursor.execute("CALL p('DO 1471147114')")
    said = web.get(f"{base}/events?limit=1000").json()
    for kind, words in (
        ("catalog", "definitions"),
        ("cache", f"an operator has answers forgotten: what {schema}.t"),
        ("cache", "the cache is switched off"),
        ("settings", "settings reloaded: changed none"),
        ("login", "code 1045"),
        ("root", "everything is forgotten: cause CALL"),
        ("node", "memcached node is reached"),
    ):
        found = [each for each in said["items"] if each["kind"] == kind and words in each["event"]]
        assert found, (kind, words, said)
        assert found[0]["s_ago"] < 60
    times = [each["at"] for each in said["items"]]
    assert times == sorted(times, reverse=True)
    assert len({each["pid"] for each in said["items"]}) == 3, "two workers and their parent"
    assert "1471147114" not in str(said)
    assert "level=info" not in served.log_text()


def test_what_a_service_account_that_is_not_let_in_costs_is_said_of_all_statements(
    mariadb: PrivateMariaDB, proxy: ProxyFactory, schema: str
) -> None:
    mariadb.sql("CREATE TABLE t (v INT)", schema)
    url = f"mysql://nobody_we_know:p@{mariadb.host}:{mariadb.port}"
    served = proxy(SimpleNamespace(service_url=url), "memory")
    base = f"http://127.0.0.1:{served.admin_port}"
    with connected(served, mariadb, schema) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT v FROM t")
        (client,) = web.get(f"{base}/api/sessions").json()["items"]
    items = web.get(f"{base}/api/statements").json()["items"]
    (why_not,) = (row["why_not"] for row in items if row["statement"] == "SELECT v FROM t")
    assert why_not == client["why_not"] == "the catalog could not be read yet"
    said = web.get(f"{base}/ready").json()["warnings"]["account"]
    assert "the account of upstream.url" in said
    assert "1045" in said


def test_an_event_tells_that_a_node_is_lost_and_back_and_that_a_write_was_refused(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory, schema: str
) -> None:
    served = proxy(
        *(mariadb, memcached),
        memcached__outage_s=2,
        cache__when_tags_unreachable="consistency",
    )
    url = f"http://127.0.0.1:{served.admin_port}/api/events?limit=1000"

    def told(*words: str) -> bool:
        events = [each["event"] for each in web.get(url).json()["items"]]
        return all(any(each in event for event in events) for each in words)

    mariadb.sql("CREATE TABLE t (v INT)", schema)
    with connected(served, mariadb, schema) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        memcached.kill()
        wait_until(lambda: told("node is not reached"), 20, "the loss of a node")
        with pytest.raises(pymysql.MySQLError, match="refused the write"):
            cursor.execute("INSERT INTO t VALUES (1471147114)")
    assert told("write refused")
    memcached.restart()
    wait_until(lambda: told("is disowned"), 30, "its return")
    assert "1471147114" not in web.get(url).text


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("policy", ["availability", "consistency"])
def test_nodes_tell_their_own_figures_and_who_is_without_them(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    policy: str,
    processes: int,
) -> None:
    served = proxy(
        mariadb,
        memcached,
        memcached__outage_s=2,
        cache__when_tags_unreachable=policy,
        proxy__workers=processes,
    )
    url = f"http://127.0.0.1:{served.admin_port}/api/nodes"

    def is_there() -> bool:
        """Where it has answered in time to what it was asked."""
        (node,) = web.get(url).json()["items"]
        assert node["node"] == memcached.address
        return (node["away"], node.get("limit_maxbytes")) == (0, 64 << 20)

    wait_until(is_there, 30, "the node's figures")
    memcached.kill()

    def is_away() -> bool:
        (node,) = web.get(url).json()["items"]
        return bool(node["away"] == processes and node["error"])

    wait_until(is_away, 20, "the node's end")
    answer = web.post(url.replace("nodes", "flush"), json={"all": True})
    assert answer.status_code == 503
    assert memcached.address in answer.json()["error"]


def command(served: PrivateSqlcache, *arguments: str) -> int:
    return main([*arguments, *FLAGS, "--admin", f"127.0.0.1:{served.admin_port}"])


def test_an_operator_sees_and_forgets_from_the_command_line(
    run: Run, served: PrivateSqlcache, schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("SELECT v FROM t", "SELECT v FROM t", "SELECT RAND()")
    assert command(served, "stats", "--statements", "--sort", "hits") == 0
    said = capsys.readouterr().out.splitlines()
    assert any("50%" in line and "SELECT v FROM t" in line for line in said)
    assert any("calls RAND()" in line for line in said)
    assert command(served, "stats", "--statements", "--json", "--limit", "1") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["calls"] >= 1
    assert command(served, "flush", "--table", f"{schema}.t") == 0
    assert capsys.readouterr().out == f"forgotten: {schema}.t\n"
    assert command(served, "flush", "--table", f"{schema}.nothing") == 2
    assert "there is no table" in capsys.readouterr().err
    assert command(served, "stats", "--statements", "--sort", "fun") == 2
    assert "sort = fun: expected one of calls" in capsys.readouterr().err
    served.stop()
    assert command(served, "flush", "--all") == 2
    assert "nobody answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shown", "sort", "words"),
    [
        ("tables", "writes", ("{schema}.t", "flushes", "written")),
        ("nodes", "node", ("{node}", "evictions", "0 of")),
        ("sessions", "id", ("{user}", "{schema}", "idle", "SELECT v FROM t", "127.0.0.1:")),
        ("events", "at", ("answers forgotten: what {schema}.t", "cache")),
    ],
)
def test_an_operator_sees_each_list_from_the_command_line(
    run: Run,
    served: PrivateSqlcache,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    capsys: pytest.CaptureFixture[str],
    shown: str,
    sort: str,
    words: tuple[str, ...],
) -> None:
    run("SELECT v FROM t", "UPDATE t SET v = 0")
    with connected(served, mariadb, schema) as connection:
        connection.cursor().execute("SELECT v FROM t")
        assert command(served, "flush", "--table", f"{schema}.t") == 0
        capsys.readouterr()
        assert command(served, "stats", f"--{shown}", "--limit", "500") == 0
        said = capsys.readouterr().out
        assert command(served, "stats", f"--{shown}", "--json", "--sort", sort) == 0
        rows = json.loads(capsys.readouterr().out)
    names = {"schema": schema, "node": memcached.address, "user": mariadb.user}
    for each in words:
        assert each.format(**names) in said
    assert rows
    assert sort in rows[0]
    assert command(served, "stats", f"--{shown}", "--sort", "fun") == 2
    assert "sort = fun: expected one of" in capsys.readouterr().err


def test_a_token_is_wanted_where_one_is_set(
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    proxy: ProxyFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = tmp_path / "token"
    token.write_text("a-long-token\n")
    served = proxy(mariadb, memcached, admin__token_file=str(token))
    url = f"http://127.0.0.1:{served.admin_port}"
    assert web.get(f"{url}/ready").status_code == 200
    assert web.get(f"{url}/api/summary").status_code == 401
    told = {"Authorization": "Bearer a-long-token"}
    assert web.get(f"{url}/api/summary", headers=told).status_code == 200
    assert "a-long-token" not in web.get(f"{url}/api/settings", headers=told).text
    assert command(served, "flush", "--all") == 2
    monkeypatch.setenv("SQLCACHE_ADMIN__TOKEN", "a-long-token")
    assert command(served, "flush", "--all") == 0
