"""What statements are, under a catalog that a test makes up."""

from sqlcache.cache.tags import Tag
from sqlcache.plan.cacheability import Assessment, Cacheable, NotCacheable, assess
from sqlcache.sql.analysis import analyse, literals
from sqlcache.sql.catalog import Catalog
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.facts import BaseTable, Facts, Relation, View
from sqlcache.sql.lexer import tokenize
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.routines import Routine
from sqlcache.sql.statement import changed

ORDERS, PRICES, PRICED, LOCAL, INDIAN, DAYS = (
    TableName("shop", name) for name in ("orders", "prices", "priced", "local", "indian", "days")
)
PRICE_OF = Routine("lib", "price_of", True, reads=frozenset({TableRef("shop", "prices")}))


def catalog(*declared: Routine, zones: bool = True) -> Catalog:
    body = b"select `lib`.`price_of`(`shop`.`orders`.`v`) AS `p` from `shop`.`orders`"
    local = b"select convert_tz(`o`.`made`,'UTC','Europe/Paris') AS `m` from `shop`.`orders` `o`"
    indian = b"select convert_tz(`o`.`made`,'+00:00','+05:30') AS `m` from `shop`.`orders` `o`"
    days = b"select `p`.`d` >= str_to_date(`p`.`s`,'%Y-%m-%d') AS `x` from `shop`.`prices` `p`"
    tables: list[Relation] = [
        BaseTable(ORDERS, "InnoDB"),
        BaseTable(PRICES, "InnoDB"),
        View(LOCAL, local),
        View(INDIAN, indian),
        View(DAYS, days),
        View(PRICED, body),
    ]
    server = Server(
        flavour="mysql",
        version=(9,),
        lower_case_table_names=0,
        declared=frozenset(declared),
        zones=zones,
    )
    facts = Facts([*tables, View(PRICED, body)])
    return Catalog.of(server, facts, Stored.of(server, ["price_of", "uuid"]))


def assessment(text: str, known: Catalog, schema: str | None = "shop") -> Assessment:
    (statement,) = analyse(text.encode(), Dialect(), declared=known.server.declared_under(schema))
    return assess(statement, schema, known)


def assessment_of_its_text(text: str, known: Catalog) -> Assessment:
    """The same where somebody has looked at its literals."""
    (statement,) = analyse(text.encode(), Dialect())
    told = literals.tell(tokenize(text.encode(), Dialect())) & statement.may_tell
    return assess(changed(statement, told=told), "shop", known)


def test_an_answer_hangs_on_what_its_functions_read_and_on_their_definitions() -> None:
    known = catalog(PRICE_OF)
    for text in ("SELECT lib.price_of(v) FROM orders", "SELECT p FROM priced"):
        made = assessment(text, known)
        assert isinstance(made, Cacheable), made
        assert made.tables == {ORDERS, PRICES}
        assert {Tag("lib"), Tag("shop"), Tag("shop", "prices")} <= set(made.tags)
    assert "lib" in known.schemas, "else its tag's version is not known"


def test_a_function_is_the_declared_one_only_where_it_surely_is() -> None:
    known = catalog(PRICE_OF, Routine("lib", "uuid", True))
    assert isinstance(assessment("SELECT price_of(v) FROM shop.orders", known, "lib"), Cacheable)
    assert not isinstance(assessment("SELECT price_of(v) FROM orders", known), Cacheable)
    assert not isinstance(assessment("SELECT UUID() FROM shop.orders", known, "lib"), Cacheable)
    assert isinstance(assessment("SELECT lib.uuid() FROM orders", known), Cacheable)
    assert not isinstance(assessment("SELECT LIB.uuid() FROM orders", known), Cacheable)


def test_a_loadable_function_belongs_to_no_schema() -> None:
    known = catalog(Routine(None, "distance", True))
    assert isinstance(assessment("SELECT Distance(v) FROM orders", known), Cacheable)
    assert not isinstance(assessment("SELECT shop.distance(v) FROM orders", known), Cacheable)


def test_a_declared_function_that_writes_or_is_not_deterministic_is_not_cached() -> None:
    writes = frozenset({TableRef("shop", "prices")})
    for routine in (Routine("lib", "f"), Routine("lib", "f", True, writes=writes)):
        made = assessment("SELECT lib.f(v) FROM orders", catalog(routine))
        assert not isinstance(made, Cacheable)
        assert "f()" in made.why.lower()


def test_every_refusal_says_why_and_has_one_of_a_few_labels() -> None:
    texts = "SELECT RAND() FROM orders", "SELECT a FROM orders", "SELECT a FROM nowhere"
    made = [assessment(text, catalog(), schema) for text in texts for schema in ("shop", None)]
    refusals = [each for each in made if isinstance(each, NotCacheable)]
    assert all(each.why for each in refusals)
    labels = {each.label for each in refusals}
    assert labels == {"not cacheable", "no default schema"}


def test_a_conversion_to_another_zone_waits_until_the_server_has_zones() -> None:
    for text in ("SELECT CONVERT_TZ(made, 'UTC', zone) FROM orders", "SELECT m FROM local"):
        assert isinstance(assessment(text, catalog()), Cacheable)
        refusal = assessment(text, catalog(zones=False))
        assert isinstance(refusal, NotCacheable)
        assert "CONVERT_TZ(), and the server has no time zones" in refusal.why


def test_a_conversion_between_offsets_waits_for_no_zones() -> None:
    without = catalog(zones=False)
    offsets = "SELECT CONVERT_TZ(made, '+00:00', '+05:30') FROM orders"
    assert isinstance(assessment_of_its_text(offsets, without), Cacheable)
    assert isinstance(assessment("SELECT m FROM indian", without), Cacheable)
    both = "SELECT CONVERT_TZ(made, '+00:00', '+05:30'), m FROM local"
    for text in (offsets.replace("+05:30", "UTC"), offsets.replace("'+05:30'", "zone"), both):
        assert isinstance(assessment_of_its_text(text, without), NotCacheable)
        assert isinstance(assessment_of_its_text(text, catalog()), Cacheable)
    assert isinstance(assessment(offsets, without), NotCacheable), "nobody has looked at it"


def test_a_date_by_a_literal_format_is_no_time() -> None:
    dated = "SELECT v FROM prices WHERE d >= STR_TO_DATE(s, '%Y-%m-%d')"
    assert isinstance(assessment_of_its_text(dated, catalog()), Cacheable)
    for text in (dated.replace("%Y-%m-%d", "%H:%i"), dated.replace("'%Y-%m-%d'", "f")):
        assert isinstance(assessment_of_its_text(text, catalog()), NotCacheable)
    assert isinstance(assessment(dated, catalog()), NotCacheable), "nobody has looked at it"


def test_a_views_format_may_be_of_another_character_set() -> None:
    assert isinstance(assessment("SELECT x FROM days", catalog()), NotCacheable)
