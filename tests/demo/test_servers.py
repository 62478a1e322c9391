import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pymysql
import pytest

from sqlcache.demo import servers
from sqlcache.demo.servers import (
    NotStarted,
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
    find_program,
    free_port,
    wait_until,
)
from sqlcache.errors import SqlcacheError


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_missing_program_names_the_package_that_has_it() -> None:
    with pytest.raises(SqlcacheError, match="apt-get install some-package"):
        find_program("no-such-program", "some-package")


def test_free_ports_are_not_those_of_outgoing_connections() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low <= 21_000:
        pytest.skip("this machine lets outgoing connections take nearly every port")
    assert not any(low <= free_port() <= high for _ in range(50))


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nobody listens on it yet."""
    first, second = free_port(), free_port()
    drawn = iter([first, second, first, 21_111, 21_112, 21_113])
    monkeypatch.setattr("random.randint", lambda *_: next(drawn))
    assert free_port() in {21_111, 21_112, 21_113}


def test_waiting_ends_with_the_condition_or_says_what_did_not_happen() -> None:
    wait_until(lambda: True, 0, "nothing")
    with pytest.raises(TimeoutError, match=r"the impossible: not within 0\.02 s"):
        wait_until(lambda: False, 0.02, "the impossible")


def test_memcached_forgets_everything_when_killed_and_keeps_its_port(
    memcached: PrivateMemcached,
) -> None:
    memcached.ask(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n")
    assert memcached.ask(b"get k\r\n", b"END\r\n") == b"VALUE k 0 1\r\nv\r\nEND\r\n"
    port = memcached.port
    memcached.kill()
    with pytest.raises(OSError, match="refused"):
        memcached.stats()
    memcached.restart()
    assert memcached.port == port
    assert memcached.ask(b"get k\r\n", b"END\r\n") == b"END\r\n"


def test_a_frozen_memcached_does_not_answer_until_it_is_thawed(
    memcached: PrivateMemcached, monkeypatch: pytest.MonkeyPatch
) -> None:
    memcached.freeze()
    with monkeypatch.context() as hurried:
        hurried.setattr(servers, "_PATIENCE_S", 0.5)
        with pytest.raises(TimeoutError):
            memcached.stats()
    memcached.thaw()
    assert memcached.stats()["pid"] == str(memcached.pid)


def test_flushing_memcached_removes_all_keys(memcached: PrivateMemcached) -> None:
    memcached.ask(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n")
    memcached.flush()
    assert memcached.ask(b"get k\r\n", b"END\r\n") == b"END\r\n"


def test_a_taken_port_is_replaced_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind((servers.HOST, 0))
        taken.listen()
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(servers, "free_port", lambda: next(ports))
        with PrivateMemcached(tmp_path) as memcached:
            assert memcached.port != taken.getsockname()[1]
            assert memcached.stats()


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    memcached = PrivateMemcached(tmp_path, options=("--no-such-option",))
    with pytest.raises(NotStarted, match=r"(?s)ended with exit code .*no-such-option"):
        memcached.start()


def test_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from sqlcache.demo.servers import PrivateMemcached\n"
        "print(PrivateMemcached(Path(sys.argv[1])).start().pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(servers.__file__).parents[2],
    )
    assert ended.returncode == -signal.SIGKILL
    pid = int(ended.stdout)
    wait_until(lambda: not is_alive(pid), 20, "memcached's end")


def test_each_sql_server_serves_its_accounts_over_tcp(
    upstream: PrivateSqlServer, schema: str
) -> None:
    connection = upstream.connect(database=schema)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (a int)")
        cursor.execute("INSERT INTO t VALUES (7)")
    connection.close()
    assert upstream.sql("SELECT 1; SELECT a FROM t", schema) == ((7,),)


def test_the_service_account_reads_the_catalog_and_writes_nothing(
    upstream: PrivateSqlServer, schema: str
) -> None:
    upstream.sql("CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t", schema)
    upstream.sql("CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1", schema)
    login = {"user": upstream.service_user, "password": upstream.service_password}
    connection = upstream.connect(**login, database="information_schema")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT VIEW_DEFINITION FROM VIEWS WHERE TABLE_SCHEMA='{schema}'")
        assert "from" in cursor.fetchone()[0]
        cursor.execute(f"SELECT TRIGGER_NAME FROM TRIGGERS WHERE TRIGGER_SCHEMA='{schema}'")
        assert cursor.fetchall() == (("g",),)
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            cursor.execute(f"INSERT INTO {schema}.t VALUES (1)")
    connection.close()


def test_status_counts_statements_but_not_the_asking(upstream: PrivateSqlServer) -> None:
    before = upstream.status("Com_select")
    upstream.sql("SELECT 1; SELECT 2")
    assert upstream.status("Com_select") == before + 2
    assert upstream.status("Com_select") == before + 2
    with pytest.raises(LookupError):
        upstream.status("No_such_status")


def test_a_killed_sql_server_keeps_what_was_committed(tmp_path: Path) -> None:
    with PrivateMariaDB(tmp_path) as mariadb:
        mariadb.sql("CREATE DATABASE d; CREATE TABLE d.t (a int); INSERT INTO d.t VALUES (1)")
        address = mariadb.address
        mariadb.stop()
        mariadb.restart()
        assert mariadb.address == address
        mariadb.sql("INSERT INTO d.t VALUES (2)")
        mariadb.kill()
        mariadb.restart()
        assert mariadb.sql("SELECT a FROM d.t") == ((1,), (2,))
        mariadb.connect().close()


def test_cpu_time_grows_with_work(mariadb: PrivateMariaDB) -> None:
    before = mariadb.cpu_s()
    mariadb.sql("SELECT BENCHMARK(3000000, MD5('x'))")
    assert mariadb.cpu_s() > before


def test_sqlcache_gets_its_settings_as_toml(tmp_path: Path) -> None:
    sqlcache = PrivateSqlcache(
        tmp_path,
        "mysql://u@h",
        ("memory",),
        cache__ttl_s=5,
        cache__skip_unhit_stores=False,
        log__level='"\\é',
    )
    sqlcache.command()
    written = tomllib.loads((tmp_path / "sqlcache.toml").read_text())
    assert written == {"cache": {"ttl_s": 5, "skip_unhit_stores": False}, "log": {"level": '"\\é'}}


def test_nothing_else_configures_sqlcache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLCACHE_PROXY__WORKERS", "7")
    sqlcache = PrivateSqlcache(tmp_path, "mysql://u@h", ("memory",))
    assert not any(name.startswith("SQLCACHE_") for name in sqlcache._environment())
