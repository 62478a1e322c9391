"""Rules and directives, decided without a server."""

import re

import pytest

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql import policy as policy_module
from sqlcache.sql.lexer import lex
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.policy import (
    NOTHING_SAID,
    Asked,
    Decision,
    Policy,
    Rule,
    Source,
    Terms,
    read_shape,
    read_terms,
)

ORDERS, ITEMS, LOGS = TableName("shop", "orders"), TableName("shop", "items"), TableName("ops", "l")


def decide(
    *rules: Rule,
    tables: tuple[TableName, ...] = (ORDERS,),
    text: str = "SELECT id FROM orders WHERE id = 7",
    user: str = "ann",
    words: Terms = NOTHING_SAID,
) -> Decision:
    said = () if words == NOTHING_SAID else (Source("said", words),)
    asked = Asked(user, lex(text.encode(), Dialect()), said)
    return Policy(rules, ttl_s=3600).decide(tables, asked)


def ttl(seconds: int, name: str = "a rule") -> Source:
    return Source(name, Terms(ttl_s=seconds))


OFF = Source("a rule", Terms(off=True))
ON = Source("a rule", Terms(off=False))


def test_without_rules_an_answer_lives_as_long_as_any_and_is_never_stale() -> None:
    decision = decide()
    assert decision.off is None
    assert decision.ttl_s == (3600, "cache.ttl_s")
    assert decision.max_staleness_s.value == decision.stale_while_revalidate_s.value == 0


@pytest.mark.parametrize(
    ("rule", "applies"),
    [
        (Rule(ttl(5)), True),
        (Rule(ttl(5), schema="shop"), True),
        (Rule(ttl(5), schema="ops"), False),
        (Rule(ttl(5), schema="shop", table="orders"), True),
        (Rule(ttl(5), schema="ops", table="orders"), False),
        (Rule(ttl(5), user="ann"), True),
        (Rule(ttl(5), user="bob"), False),
        (Rule(ttl(5), shape=read_shape("select id from orders where id = ?")), True),
        (Rule(ttl(5), shape=read_shape("SELECT id FROM orders WHERE id = 9;")), True),
        (Rule(ttl(5), shape=read_shape("SELECT id FROM orders WHERE id < ?")), False),
        (Rule(ttl(5), pattern=re.compile("id = [0-9]")), True),
        (Rule(ttl(5), pattern=re.compile("^id")), False),
        (Rule(ttl(5), schema="shop", user="bob"), False),
    ],
)
def test_a_rule_applies_where_all_its_conditions_are_met(rule: Rule, applies: bool) -> None:
    assert (decide(rule).ttl_s.value == 5) is applies


def test_the_first_rule_that_gives_a_setting_decides_it() -> None:
    staleness = Source("b", Terms(max_staleness_s=1, ttl_s=60))
    decision = decide(Rule(ttl(5, "a"), schema="shop"), Rule(staleness), Rule(ttl(1, "c")))
    assert decision.ttl_s == (5, "a")
    assert decision.max_staleness_s == (1, "b")


def test_a_rule_may_except_from_a_later_one() -> None:
    rules = Rule(ON, schema="shop", table="orders"), Rule(OFF)
    assert decide(*rules).off is None
    assert decide(*rules, tables=(ITEMS,)).off == "a rule"
    assert decide(*rules, tables=(ORDERS, ITEMS)).off == "a rule"


def test_several_tables_get_the_strictest_of_what_each_may_have() -> None:
    lax = Source("a", Terms(ttl_s=7200, max_staleness_s=5, stale_while_revalidate_s=5))
    strict = Source("b", Terms(ttl_s=60, max_staleness_s=2, row_tags=False))
    rules = Rule(lax, schema="shop", table="orders"), Rule(strict, schema="shop", table="items")
    decision = decide(*rules, tables=(ORDERS, ITEMS))
    assert decision.ttl_s == (60, "b")
    assert decision.max_staleness_s == (2, "b")
    assert decision.stale_while_revalidate_s.value == 0
    assert decision.row_tags == (False, "b")
    assert decide(*rules, tables=(ORDERS, LOGS)).max_staleness_s.value == 0
    assert decide(*rules, tables=(ORDERS, LOGS)).row_tags == (True, "default")


def test_what_the_app_says_comes_first_but_switches_nothing_on() -> None:
    words = Terms(ttl_s=9, max_staleness_s=1)
    assert decide(Rule(ttl(5)), words=words).ttl_s == (9, "said")
    assert decide(Rule(ttl(5)), words=words).max_staleness_s == (1, "said")
    assert decide(Rule(OFF), words=words).off == "a rule"
    assert decide(Rule(OFF), words=Terms(off=False)).off == "a rule"
    assert decide(Rule(ON), words=Terms(off=True)).off == "said"


def test_a_markers_shape_is_a_literals_and_directives_do_not_count() -> None:
    rule = Rule(ttl(5), shape=read_shape("SELECT id FROM orders WHERE id IN (?) AND name = ?"))
    for text in (
        "SELECT id FROM orders WHERE id IN (1, 2, 3) AND name = 'x'",
        "SELECT id FROM orders WHERE id IN (?, ?) AND name = ?",
        "/* sqlcache: ttl=5 */ select id from orders /* x */ where id IN (?) and name = 'y'",
    ):
        assert decide(rule, text=text).ttl_s.value == 5, text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*), `a b` FROM shop.t WHERE v IN (1, 2) AND w = -1 LIMIT 5",
        "WITH c AS (SELECT 1) SELECT * FROM c JOIN t ON t.`x` = c.y /*+ HINT */ ORDER BY f (1)",
        "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
        "(SELECT a FROM t) UNION SELECT b.c FROM b WHERE d = 0x1F",
    ],
)
def test_a_shape_as_it_is_shown_names_the_same_statements(text: str) -> None:
    shown = read_shape(text).decode()
    assert read_shape(shown) == read_shape(text)


def test_a_shape_that_cannot_be_read_is_refused() -> None:
    for text in ("", "  ;", "SELECT 'x"):
        with pytest.raises(SqlSyntaxError):
            read_shape(text)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("off", Terms(off=True)),
        (" OFF ", Terms(off=True)),
        ("ttl=5", Terms(ttl_s=5)),
        ("ttl = 5, max_staleness_ms=250", Terms(ttl_s=5, max_staleness_s=0.25)),
        ("ttl=5 stale_while_revalidate_s=1.5", Terms(ttl_s=5, stale_while_revalidate_s=1.5)),
        ("max_staleness_ms=0", Terms(max_staleness_s=0)),
    ],
)
def test_a_directive_says_terms(text: str, terms: Terms) -> None:
    assert read_terms(text) == terms


@pytest.mark.parametrize(
    "text",
    [
        *("", "on", "tll=5", "ttl", "ttl=", "ttl=0", "ttl=1.5", "ttl=-1", "off=1", "ttl=5 soon"),
        *("ttl=2592001", "max_staleness_ms=86400001", "ttl=5;", "an expression", "off, , nonsense"),
    ],
)
def test_a_directive_that_is_not_understood_is_off(text: str) -> None:
    assert read_terms(text) == Terms(off=True)


def test_names_are_compared_as_the_server_does() -> None:
    policy = Policy([Rule(OFF, schema="Shop", table="Orders")], ttl_s=60)
    asked = Asked("ann", lex(b"SELECT 1", Dialect()))
    assert policy.decide([ORDERS], asked).off is None
    assert policy.folded(str.lower).decide([ORDERS], asked).off == "a rule"


def test_words_too_long_to_be_understood_are_not_remembered() -> None:
    before = policy_module._read_terms.cache_info().currsize
    for each in range(10):
        assert read_terms(f"ttl={each}" + " " * 100_000) == Terms(off=True)
    assert policy_module._read_terms.cache_info().currsize == before
