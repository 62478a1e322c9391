"""`sqlcache explain` beside real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sqlcache.admin.questions import Refused
from sqlcache.app import App
from sqlcache.cli import main
from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlServer, wait_until
from sqlcache.plan.explanations import MOST_STATEMENTS
from sqlcache.settings.sources import from_arguments
from sqlcache.sql.lexer import lex
from sqlcache.sql.pieces import Dialect
from tests.conftest import ProxyFactory
from tests.costs import cost_s


@pytest.fixture(scope="module")
def shop(upstream: PrivateSqlServer) -> Iterator[PrivateSqlServer]:
    """A server with a schema `explained`, which goes: others go by which code there is."""
    upstream.sql(
        "DROP DATABASE IF EXISTS explained; CREATE DATABASE explained; USE explained;"
        "CREATE TABLE orders (id INT PRIMARY KEY, v INT);"
        "CREATE TABLE pages (id INT PRIMARY KEY, k INT, hits INT, KEY (k));"
        "CREATE TABLE audit (id INT); CREATE TABLE fast (id INT) ENGINE=MEMORY;"
        "CREATE TRIGGER t AFTER INSERT ON orders FOR EACH ROW INSERT INTO audit VALUES (1);"
        "CREATE VIEW seen AS SELECT id, v + 1 AS w FROM orders;"
        "CREATE VIEW late AS SELECT id, UUID() AS u FROM orders"
    )
    yield upstream
    upstream.sql("DROP DATABASE explained")


@pytest.fixture
def explain(shop: PrivateSqlServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Explain:
    return Explain(shop, capsys, tmp_path / "sqlcache.toml")


class Explain:
    """`explain(statement, *flags)` is what the command prints, by the names of its lines."""

    def __init__(
        self, server: PrivateSqlServer, capsys: pytest.CaptureFixture[str], config: Path
    ) -> None:
        self._server = server
        self._capsys = capsys
        self.config = config
        config.write_text("")

    def __call__(self, statement: str, *flags: str) -> dict[str, str]:
        known = ["--upstream", self._server.service_url, "--config", str(self.config)]
        schema = [] if "--schema" in flags else ["--schema", "explained"]
        assert main(["explain", statement, *schema, *flags, *known]) == 0
        lines = self._capsys.readouterr().out.splitlines()
        return {line[:10].strip(): line[11:] for line in lines if line[:10].strip()}


def test_a_cached_read_tells_what_its_answer_hangs_on(explain: Explain) -> None:
    said = explain("select w from seen where id = 7")
    assert said["statement"] == "SELECT w FROM seen WHERE id = ?"
    assert said["cached"] == "yes"
    assert said["tables"] == "explained.orders"
    assert said["views"] == "explained.seen"
    assert said["tags"] == "*.*, explained.*, explained.orders, explained.seen"
    assert said["ttl"] == "3600 s (cache.ttl_s)"
    assert said["stale"] == "at most 0 s behind a write (default)"
    assert said["key"] == "text: SELECT w FROM seen WHERE id = 7"


def test_a_read_of_single_rows_tells_what_it_pins(explain: Explain) -> None:
    assert "pins" not in explain("SELECT v FROM orders WHERE id = 7")
    explain.config.write_text("[cache]\nrow_tags = true\n")
    said = explain("SELECT v FROM orders WHERE id = 7")
    assert said["pins"] == "id: writes to other rows may leave it"
    assert explain("SELECT v FROM orders WHERE id = ?")["pins"] == said["pins"]
    assert "pins" not in explain("SELECT v FROM orders WHERE v = 7")
    assert explain("SELECT id FROM orders")["unread"] == "v: an UPDATE of no others may leave it"
    assert "unread" not in said
    assert "pins" not in explain("SELECT w FROM seen WHERE id = 7")
    joined = explain("SELECT o.v FROM orders o JOIN pages p ON p.id = o.id WHERE o.id = 7")
    assert joined["pins"] == "orders.id, pages.id: writes to other rows may leave it"
    assert joined["unread"] == "pages.hits: an UPDATE of no others may leave it"
    with explain.config.open("a") as config:
        config.write("[[rules]]\nrow_tags = false\n")
    assert explain("SELECT v FROM orders WHERE id = 7")["pins"] == "nothing: rules[0] says so"


def test_a_write_to_single_rows_tells_what_it_leaves(explain: Explain) -> None:
    explain.config.write_text("[cache]\nrow_tags = true\n")
    told = "answers that are told apart by"
    assert explain("DELETE FROM pages WHERE id = 7")["leaves"] == f"{told} id, of other rows"
    counts = explain("UPDATE pages SET hits = hits + 1 WHERE k > 7")
    assert counts["leaves"] == f"{told} not reading hits"
    assert "pins" not in counts
    assert "unread" not in counts
    assert "leaves" not in explain("UPDATE pages SET k = 1 WHERE hits = 7")
    asked = explain("UPDATE pages SET k = 1 WHERE id = 7")["asks"]
    assert asked == "k: MySQL is asked which of these it touches"
    assert "asks" not in explain("UPDATE pages SET k = k + 1 WHERE id = 7")
    assert "leaves" not in explain("UPDATE orders SET v = 1 WHERE id = 7"), "it has a trigger"


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("SELECT RAND() FROM orders", "calls RAND(), which is not deterministic"),
        ("SELECT f(v) FROM orders", "calls F(), which is not built in"),
        ("SELECT @x, v FROM orders", "uses a user variable"),
        ("SELECT @@sql_mode FROM orders", "uses a system variable"),
        ("SELECT v FROM orders FOR UPDATE", "locks what it reads with FOR UPDATE"),
        ("SELECT v FROM orders LOCK IN SHARE MODE", "locks what it reads with LOCK IN SHARE MODE"),
        ("SELECT SQL_NO_CACHE v FROM orders", "asks for SQL_NO_CACHE"),
        ("SELECT * FROM information_schema.tables", "reads information_schema"),
        ("SELECT * FROM late", "view explained.late: calls UUID(), which is not deterministic"),
        ("SELECT * FROM fast", "rows of explained.fast can change unseen in engine MEMORY"),
        ("SELECT * FROM nowhere", "explained.nowhere is not a table known to the catalog"),
        ("SELECT 1", "reads no table"),
        ("SELECT v FROM orders /* sqlcache: off */", "/* sqlcache: off */ switches it off"),
        ("SELECT v FROM orders; SELECT 1", "it is one of several statements in one text"),
        ("SHOW TABLES", "SHOW is not a query"),
    ],
)
def test_a_read_that_is_not_cached_tells_why(explain: Explain, statement: str, why: str) -> None:
    assert explain(statement)["cached"] == f"no: {why}"


def test_without_a_schema_it_says_that_one_is_missing(explain: Explain) -> None:
    assert "without its schema" in explain("SELECT v FROM orders", "--schema", "")["cached"]
    assert explain("SELECT v FROM explained.orders", "--schema", "")["cached"] == "yes"


def test_a_write_tells_what_it_writes_and_bumps(explain: Explain) -> None:
    said = explain("INSERT INTO orders VALUES (1, 1)")
    assert said["cached"] == "no: INSERT is not a query"
    assert said["writes"] == "explained.orders"
    assert said["bumps"] == "explained.audit, explained.orders"
    assert explain("CALL p()")["bumps"] == "*.*"


def test_the_rule_that_decides_is_named(explain: Explain) -> None:
    explain.config.write_text(
        '[[rules]]\nuser = "ann"\noff = true\n'
        '[[rules]]\nstatement = "SELECT v FROM orders WHERE id = ?"\nmax_staleness_ms = 500\n'
        '[[rules]]\ntable = "explained.orders"\nttl_s = 60\n'
    )
    said = explain("SELECT v FROM orders WHERE id = 7")
    assert said["ttl"] == "60 s (rules[2])"
    assert said["stale"] == "at most 0.5 s behind a write (rules[1])"
    assert explain("SELECT v FROM orders WHERE id = ?")["ttl"] == "60 s (rules[2])"
    assert (
        explain("SELECT v FROM orders", "--user", "ann")["cached"] == "no: rules[0] switches it off"
    )
    assert explain("SELECT v FROM orders /* sqlcache: ttl=5 */")["ttl"] == (
        "5 s (/* sqlcache: ttl=5 */)"
    )


@pytest.mark.parametrize("statement", ["SELECT 'x", "", "/* nothing */"])
def test_what_is_no_statement_is_refused(
    shop: PrivateSqlServer, capsys: pytest.CaptureFixture[str], statement: str
) -> None:
    assert main(["explain", statement, "--upstream", shop.service_url]) == 2
    assert "statement" in capsys.readouterr().err


def test_a_server_that_cannot_be_reached_is_said_in_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "SELECT 1", "--upstream", "mysql://cat:s3cret@127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "s3cret" not in said


QUERIES = [
    ("SELECT w FROM seen WHERE id = 7", []),
    ("SELECT v FROM orders", ["--user", "ann"]),
    ("INSERT INTO orders VALUES (1, 1)", []),
    ("CALL p()", []),
    ("SELECT v FROM orders; SELECT RAND()", []),
]


def test_a_running_sqlcache_explains_by_the_rules_it_has(
    shop: PrivateSqlServer,
    proxy: ProxyFactory,
    explain: Explain,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = [{"user": "ann", "off": True}, {"table": "explained.orders", "ttl_s": 60}]
    running = proxy(shop, "memory", rules=rules, admin__token="a-long-token")
    asked = ["--schema", "explained", "--admin", f"http://127.0.0.1:{running.admin_port}/"]

    def of_the_running(statement: str, *flags: str) -> tuple[int, str, str]:
        code = main(["explain", statement, *flags, *asked])
        return code, *capsys.readouterr()

    wait_until(lambda: bool(running.readiness()["ready"]), 10, "the catalog")
    code, _, error = of_the_running("SELECT 1")
    assert (code, "Bearer" in error) == (2, True)
    monkeypatch.setenv("SQLCACHE_ADMIN__TOKEN", "a-long-token")
    assert "ttl        60 s (rules[1])" in of_the_running("SELECT v FROM orders")[1]
    explain.config.write_text(
        '[[rules]]\nuser = "ann"\noff = true\n[[rules]]\ntable = "explained.orders"\nttl_s = 60\n'
    )
    here = ["--upstream", shop.service_url, "--config", str(explain.config)]
    for statement, flags in QUERIES:
        assert main(["explain", statement, *flags, "--schema", "explained", *here]) == 0
        expected = capsys.readouterr().out
        assert of_the_running(statement, *flags) == (0, expected, "")
    code, _, error = of_the_running("SELECT 'x")
    assert (code, "the statement cannot be read" in error) == (2, True)
    running.stop()
    code, _, error = of_the_running("SELECT 1")
    assert (code, "nobody answers" in error) == (2, True)


def test_a_long_statement_pins_nothing(explain: Explain) -> None:
    explain.config.write_text("[cache]\nrow_tags = true\n")
    where = f"id = 7 AND k <> '{'x' * 5_000}'"
    assert "pins" not in explain(f"SELECT hits FROM pages WHERE {where}")
    assert "leaves" not in explain(f"DELETE FROM pages WHERE {where}")


async def test_a_long_text_is_explained_while_others_are_served(mariadb: PrivateMariaDB) -> None:
    app = App(
        from_arguments(
            {
                "upstream.url": mariadb.service_url,
                "memcached.nodes": "memory",
                "proxy.listen": "127.0.0.1:0",
            }
        )
    )
    await app.planner.keeper.refresh()
    columns = ",".join(["a"] * 8_000)
    try:
        for text in (f"SELECT '?',{columns} FROM t", "SET " + ",".join(["@a=1"] * 3_000)):
            took = []
            for _ in range(5):
                began = time.thread_time()
                assert isinstance(await app.operations.explain(text, "shop", "app"), list)
                took.append(time.thread_time() - began)
            assert min(took) < min(cost_s(partial(lex, text.encode(), Dialect())) for _ in took)
        said = await app.operations.explain("SELECT 1;" * (MOST_STATEMENTS + 1), "shop", "app")
        assert isinstance(said, Refused)
        assert said.sentence == f"expected at most {MOST_STATEMENTS} statements in one text"
    finally:
        await app.stop()
