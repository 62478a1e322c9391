"""`sqlcache stats --suggest`: what figures speak for, and beside a real proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sqlcache.cli import main
from sqlcache.commands import suggestions as module
from sqlcache.commands.suggestions import suggestions
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from sqlcache.rules import policy_of
from sqlcache.settings.sources import load
from tests.conftest import ProxyFactory

UNUSED = "SELECT v FROM t WHERE id = ?"
ENDED = "SELECT COUNT( * ) FROM t WHERE v < ?"
HOUR_S = 3600.0


def row(statement: str = UNUSED, **figures: Any) -> dict[str, Any]:
    some = {"fills": 100, "misses": 100, "hits": 0, "refills_same": 0, "mysql_mean_s": 0.001}
    named = {"statement": statement, "kind": "read", **some, **figures}
    return {**named, "calls": named["hits"] + named["misses"]}


def rules(*rows: dict[str, Any], up_s: float = HOUR_S, there: Any = ()) -> list[Any]:
    return [dict(each.rule) for each in suggestions(rows, up_s, there)]


def test_what_is_stored_and_never_hit_need_not_be_cached() -> None:
    assert rules(row()) == [{"statement": UNUSED, "off": True}]
    assert rules(row(hits=1, fills=101)) == [{"statement": UNUSED, "off": True}]
    assert rules(row(hits=1, fills=100)) == []
    assert rules(row(fills=49)) == []
    assert rules(row(kind="write")) == []


@pytest.mark.parametrize(
    ("in_vain", "milliseconds"), [(180_000, 100), (18_000, 1_000), (1_800, 10_000)]
)
def test_what_writes_end_in_vain_may_be_as_much_behind_as_helps(
    in_vain: int, milliseconds: int
) -> None:
    found = rules(row(fills=in_vain, refills_same=in_vain, hits=in_vain))
    assert found == [{"statement": UNUSED, "max_staleness_ms": milliseconds}]
    assert rules(row(fills=4 * in_vain, refills_same=in_vain, hits=in_vain)) == []


def test_what_is_seldom_ended_is_left_alone() -> None:
    assert rules(row(fills=1_700, refills_same=1_700)) == []


def test_a_cache_that_has_just_begun_to_fill_is_not_judged() -> None:
    assert rules(row(), up_s=299) == []
    assert rules(row(), up_s=300) != []


@pytest.mark.parametrize(
    "text", ["SELECT 1, …", 'SELECT "v" FROM t', "SELECT '", "SELECT '\ufffd'"]
)
def test_what_no_rule_can_name_is_left_out(text: str) -> None:
    assert rules(row(text)) == []


def test_what_a_rule_names_already_is_left_out() -> None:
    there = [{"statement": "select v  from t where id=7", "ttl_s": 5}, {"user": "x", "off": True}]
    assert rules(row(), row(ENDED), there=there) == [{"statement": ENDED, "off": True}]


def test_what_weighs_most_is_first() -> None:
    assert [r["statement"] for r in rules(row(), row(ENDED, fills=200))] == [ENDED, UNUSED]


def test_the_rules_for_a_running_sqlcache_are_settings_that_apply(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)", schema)
    running = proxy(mariadb, memcached)
    asked = ["stats", "--suggest", "--admin", f"127.0.0.1:{running.admin_port}"]
    login = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with running.connect(**login) as connection, connection.cursor() as cursor:
        for number in range(60):
            cursor.execute(f"SELECT v FROM t WHERE id = {number}")
            cursor.execute("SELECT COUNT(*) FROM t WHERE v < 5")
            cursor.execute("SELECT COUNT(*) FROM t WHERE v < 5")
            cursor.execute(f"INSERT INTO t VALUES ({number + 2}, 9)")
    assert main(asked) == 0
    assert "Nothing to suggest yet" in capsys.readouterr().out
    monkeypatch.setattr(module, "LEAST_UP_S", 0)
    assert main(asked) == 0
    said = capsys.readouterr().out
    file = tmp_path / "suggested.toml"
    file.write_text(said)
    settings = load(file, {}, {"upstream": "mysql://cat@127.0.0.1:1", "memcached": ["memory"]})[0]
    policy_of(settings)
    unused, ended = sorted(settings.rules, key=lambda rule: rule.off is None)
    assert (unused.statement, unused.off) == (UNUSED, True)
    assert ended.statement == ENDED
    assert ended.max_staleness_ms in (100, 1_000, 10_000)
    assert "# 60 calls in " in said
    assert "0 hits, 60 answers stored" in said

    upstream = ["--upstream", mariadb.service_url, "--schema", schema, "--config", str(file)]
    assert main(["explain", "SELECT v FROM t WHERE id = 7", *upstream]) == 0
    assert "switches it off" in capsys.readouterr().out
    assert main(["explain", "SELECT COUNT(*) FROM t WHERE v < 5", *upstream]) == 0
    assert f"at most {ended.max_staleness_ms / 1000:g} s behind a write" in capsys.readouterr().out


def test_where_there_is_nothing_it_says_so(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    running = proxy(mariadb, "memory")
    monkeypatch.setattr(module, "LEAST_UP_S", 0)
    assert main(["stats", "--suggest", "--admin", f"127.0.0.1:{running.admin_port}"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# Nothing to suggest: ")
    (tmp_path / "sqlcache.toml").write_text(said)
    flags = {"upstream": "mysql://cat@127.0.0.1:1", "memcached": ["memory"]}
    assert load(tmp_path / "sqlcache.toml", {}, flags).settings.rules == ()
