"""Which works there are, and which of their reads count."""

from dataclasses import replace
from random import Random

from tests.bench import row_tags, visits
from tests.bench.binlog import MARIADB, MYSQL
from tests.bench.pace import QUICK


def test_works_are_told_apart_by_their_names() -> None:
    names = [each.name for each in row_tags.works()]
    assert len(set(names)) == len(names) == 8
    wanted = row_tags.wanted(replace(QUICK, only="rows: django"))
    assert [each.name for each in wanted] == ["Django, 1 of 10 requests saves"]


def test_real_works_are_done_on_both_kinds_of_server() -> None:
    here = [each.name for each in row_tags.works() if each.runs_on(MARIADB)]
    there = [each.name for each in row_tags.works() if each.runs_on(MYSQL)]
    assert len(here) == 8
    assert there == here[:4]


def test_reads_that_no_cache_could_answer_do_not_count() -> None:
    passed = 'sqlcache_bypasses_total{{reason="{}"}}'.format
    before = {"sqlcache_hits_total": 5.0, "sqlcache_misses_total": 1.0}
    after = {
        "sqlcache_hits_total": 8.0,
        "sqlcache_misses_total": 3.0,
        passed("a write is in flight"): 4.0,
        passed("not provably in the transaction's snapshot"): 10.0,
        passed("not cacheable"): 100.0,
        passed("transaction"): 1_000.0,
    }
    assert row_tags.reads(before, after) == (3, 2 + 4 + 10)


def test_a_price_that_is_posted_is_what_its_answer_shows() -> None:
    page = visits.price(Random(1), 7)
    assert page.path == "/api/products/7/price/"
    assert page.form is not None
    assert page.shows == f'"price": "{page.form["price"]}"'.encode()
