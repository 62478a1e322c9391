"""The settings' rules and declarations, as the proxy works with them."""

import re

from sqlcache.errors import ConfigError, SqlSyntaxError
from sqlcache.settings import RoutineSettings, RuleSettings, Settings
from sqlcache.sql.names import TableRef
from sqlcache.sql.policy import Policy, Rule, Source, Terms, read_shape
from sqlcache.sql.routines import Routine


def policy_of(settings: Settings) -> Policy:
    """The rules, in their order. Raises: ConfigError for a statement that cannot be read."""
    rules = (_rule(f"rules[{number}]", rule) for number, rule in enumerate(settings.rules))
    return Policy(rules, ttl_s=settings.cache.ttl_s)


def _rule(name: str, rule: RuleSettings) -> Rule:
    schema, _, table = (rule.table or "").partition(".")
    if rule.table is not None and rule.schema_ not in (None, schema):
        raise ConfigError(
            f"{name}.schema = {rule.schema_}: expected {schema}, the schema of its table, or none"
        )
    milliseconds = rule.max_staleness_ms
    return Rule(
        Source(
            name,
            Terms(
                off=rule.off,
                ttl_s=rule.ttl_s,
                max_staleness_s=None if milliseconds is None else milliseconds / 1000,
                stale_while_revalidate_s=rule.stale_while_revalidate_s,
                row_tags=rule.row_tags,
            ),
        ),
        schema=schema or rule.schema_,
        table=table or None,
        user=rule.user,
        shape=None if rule.statement is None else _shape(f"{name}.statement", rule.statement),
        pattern=None if rule.matches is None else re.compile(rule.matches),
    )


def _shape(name: str, statement: str) -> bytes:
    try:
        return read_shape(statement)
    except SqlSyntaxError as error:
        raise ConfigError(f"{name} = {statement}: expected a statement, but {error}") from None


def declared_of(settings: Settings) -> frozenset[Routine]:
    """The routines of which the settings say what they do."""
    return frozenset(map(_routine, settings.routines))


def _routine(routine: RoutineSettings) -> Routine:
    schema, _, name = routine.name.rpartition(".")
    return Routine(
        schema or None,
        name,
        deterministic=routine.deterministic,
        reads=frozenset(map(_table, routine.reads)),
        writes=frozenset(map(_table, routine.writes)),
    )


def _table(name: str) -> TableRef:
    schema, _, table = name.partition(".")
    return TableRef(schema, table)
