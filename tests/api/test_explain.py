"""What a cache says of statements, beside what becomes of them."""

from __future__ import annotations

import pytest

import sqlcache
from sqlcache.api.cache import Cache
from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlServer
from sqlcache.errors import UsageError
from sqlcache.testing import without_servers
from tests.api.conftest import Open, url_of

READ = "SELECT name FROM product WHERE id = %s"


async def test_a_cached_read_tells_its_rule_its_tags_and_its_key(
    mariadb: PrivateMariaDB, open_cache: Open, shop: str
) -> None:
    rules = [{"table": f"{shop}.product", "ttl_s": 60}]
    cache: Cache = await open_cache(rules=rules, session={"time_zone": "+02:00"})
    explained = await cache.explain(READ, (7,))
    assert explained.cached
    assert explained.statement == "SELECT name FROM product WHERE id = ?"
    assert explained.ttl == (60, "rules[0]")
    assert explained.max_staleness == (0, "default")
    assert explained.tables == (f"{shop}.product",)
    assert explained.tags == ("*.*", f"{shop}.*", f"{shop}.product")
    assert explained.key is not None
    assert explained.key.text == "SELECT name FROM product WHERE id = 7"
    assert (explained.key.user, explained.key.schema) == (mariadb.user, shop)
    assert explained.key.settings["time_zone"] == "+02:00"
    assert "ttl        60 s (rules[0])" in str(explained).splitlines()
    assert (cache.metrics.hits, cache.metrics.misses) == (0, 0)
    assert await cache.fetch_value(READ, (7,)) == await cache.fetch_value(READ, (7,)) == "p7"
    assert cache.metrics.hits == 1


async def test_what_is_not_cached_tells_why_and_by_whom(open_cache: Open, shop: str) -> None:
    cache: Cache = await open_cache(rules=[{"table": f"{shop}.product", "off": True}])
    explained = await cache.explain(READ, (7,))
    assert not explained.cached
    assert explained.why_not == "rules[0] switches it off"
    assert explained.off_by == "rules[0]"
    assert explained.tables == (f"{shop}.product",)
    assert explained.key is None
    random = await cache.explain("SELECT RAND() FROM product")
    assert random.why_not == "calls RAND(), which is not deterministic"
    assert (random.off_by, random.tags) == (None, ())


async def test_a_write_tells_what_it_forgets(
    upstream: PrivateSqlServer, schema: str, open_cache: Open
) -> None:
    cache: Cache = await open_cache(url=url_of(upstream, schema))
    await cache.execute("CREATE TABLE product (id INT); ")
    await cache.execute("CREATE TABLE audit (id INT)")
    await cache.execute(
        "CREATE TRIGGER t AFTER INSERT ON product FOR EACH ROW INSERT INTO audit VALUES (1)"
    )
    explained = await cache.explain("INSERT INTO product VALUES (%s)", (1,))
    assert not explained.cached
    assert explained.writes == (f"{schema}.product",)
    assert explained.bumps == (f"{schema}.audit", f"{schema}.product")
    assert await cache.fetch_value("SELECT COUNT(*) FROM product") == 0


async def test_what_changed_elsewhere_a_moment_ago_is_known(
    cache: Cache, mariadb: PrivateMariaDB
) -> None:
    assert not (await cache.explain("SELECT id FROM new")).cached
    mariadb.sql("CREATE TABLE new (id INT)", cache.database)
    assert (await cache.explain("SELECT id FROM new")).cached


@pytest.mark.parametrize("statement", ["", "SELECT 'x", "SELECT id FROM product; SELECT 1"])
async def test_what_is_not_one_statement_is_refused(cache: Cache, statement: str) -> None:
    with pytest.raises(UsageError, match="statement"):
        await cache.explain(statement)


async def test_it_works_without_servers() -> None:
    cache = sqlcache.connect("mysql://a:b@127.0.0.1/shop", memcached="memory")
    async with without_servers(cache, tables=["product"]) as mysql:
        assert (await cache.explain(READ, (7,))).tables == ("shop.product",)
        assert all("product" not in statement for statement in mysql.statements)
