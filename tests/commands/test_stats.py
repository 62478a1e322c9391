"""`sqlcache stats` beside a real proxy and memcached."""

import pytest

from sqlcache.cli import main
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, free_port, wait_until
from tests.conftest import ProxyFactory


def flags(memcached: PrivateMemcached) -> list[str]:
    upstream = ["--upstream", "mysql://sqlcache:secret@127.0.0.1:3306"]
    return [*upstream, "--memcached", memcached.address]


def test_a_tables_tag_and_what_hangs_on_it_are_shown(
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mariadb.sql("CREATE TABLE t (id int PRIMARY KEY)", schema)
    server = proxy(mariadb, memcached)
    with (
        server.connect(user=mariadb.user, password=mariadb.password, database=schema) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT id FROM t WHERE id = 7")
    said = ""

    def recorded() -> bool:  # what is stored is noted a little later
        nonlocal said
        assert main(["stats", "--table", f"{schema}.t", *flags(memcached)]) == 0
        said = capsys.readouterr().out
        return "1 fill(s) recorded" in said

    wait_until(recorded, 20, "the record")
    assert f"tag {schema}.t: version" in said
    assert "SELECT id FROM t" in said


def test_the_nodes_own_figures_are_shown(
    memcached: PrivateMemcached, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", *flags(memcached)]) == 0
    assert f"{memcached.address}: version=1" in capsys.readouterr().out


def test_a_node_that_is_away_is_said_in_a_line(
    memcached: PrivateMemcached, capsys: pytest.CaptureFixture[str]
) -> None:
    away = f"127.0.0.1:{free_port()}"
    assert main(["stats", *flags(memcached), "--memcached", away]) == 0
    assert f"{away}: cannot be reached" in capsys.readouterr().out
    memcached.kill()
    assert main(["stats", *flags(memcached), "--memcached", away]) == 1
    assert capsys.readouterr().out.count("cannot be reached") == 2
    assert main(["stats", "--table", "shop.orders", *flags(memcached)]) == 2
    assert memcached.address in capsys.readouterr().err


def test_a_node_that_stands_still_is_said_in_a_line(
    memcached: PrivateMemcached, capsys: pytest.CaptureFixture[str]
) -> None:
    memcached.freeze()
    try:
        assert main(["stats", *flags(memcached)]) == 1
    finally:
        memcached.thaw()
    assert "cannot be reached" in capsys.readouterr().out


@pytest.mark.parametrize("table", ["orders", ".orders", "shop.", "my.db.orders"])
def test_a_table_without_its_schema_or_with_two_is_refused(
    memcached: PrivateMemcached, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    assert main(["stats", "--table", table, *flags(memcached)]) == 2
    assert "expected SCHEMA.TABLE" in capsys.readouterr().err
