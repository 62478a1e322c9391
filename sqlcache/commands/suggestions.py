"""`sqlcache stats --suggest`: rules worth adding, from what statements were answered by.

- Two things can be told from a statement's figures. Its answers are stored and never asked for
  again: it need not be cached. Or writes end them all the while, and they come back the same: it
  could be a little behind. How much is for people to decide; the least that helps is suggested.
- What is printed is TOML, each rule with the figures that speak for it. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlcache.admin.client import AdminClient
from sqlcache.commands import toml
from sqlcache.errors import SqlSyntaxError
from sqlcache.settings import Settings
from sqlcache.sql.policy import read_shape

LEAST_UP_S: Final = 300.0
"""Until then a cache that fills looks like one that is never hit."""

_LEAST_FILLS: Final = 50
_NEVER_HIT_SHARE: Final = 0.01
_IN_VAIN_SHARE: Final = 0.3
_STALENESS_MS: Final = (100, 1_000, 10_000)
_ENDS_WITHIN: Final = 5
"""So many ends by writes in the time that an answer may be behind, else that changes little."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule, the figures that speak for it, and how many stored answers it is about."""

    why: str
    rule: Mapping[str, object]
    weight: int


def run(settings: Settings, limit: int) -> int:
    """Prints at most so many rules, or that there are none; returns the process's exit code.

    Raises: ConfigError where nobody answers.
    """
    client = AdminClient(settings)
    up_s: float = client.get("/api/summary")["up_s"]
    rows = client.get("/api/statements?sort=fills&limit=1000")["items"]
    rules = [v for path, v in client.get("/api/settings").items() if path.startswith("rules[")]
    found = suggestions(rows, up_s, rules)
    print("\n".join(_shown(found[:limit], len(rows), up_s)))
    return 0


def suggestions(
    rows: Sequence[Mapping[str, Any]], up_s: float, rules: Sequence[Mapping[str, Any]]
) -> list[Suggestion]:
    """For the rows of `/api/statements`, first what weighs most. `rules` are there already: about
    what one of them names nothing is suggested."""
    if up_s < LEAST_UP_S:
        return []
    named = {_shape(rule["statement"]) for rule in rules if "statement" in rule}
    found = (
        _suggestion(row, up_s)
        for row in rows
        if row["kind"] == "read" and row["fills"] >= _LEAST_FILLS
        if _can_be_named(row["statement"]) and _shape(row["statement"]) not in named
    )
    return sorted(filter(None, found), key=lambda each: each.weight, reverse=True)


def _can_be_named(statement: str) -> bool:
    """Whether a rule can: not where it was too long for the list, was no UTF-8, or is read in
    another way, as `"` under ANSI_QUOTES."""
    return _shape(statement) == statement.encode() and not {"…", "\ufffd"}.intersection(statement)


def _shape(statement: str) -> bytes | None:
    try:
        return read_shape(statement)
    except SqlSyntaxError:
        return None


def _suggestion(row: Mapping[str, Any], up_s: float) -> Suggestion | None:
    fills, in_vain, hits = row["fills"], row["refills_same"], row["hits"]
    rule: dict[str, object] = {"statement": row["statement"]}
    counted = f"{row['calls']} calls in {up_s:.0f} s: {hits} hits, {fills} answers stored"
    if in_vain >= _LEAST_FILLS and in_vain >= _IN_VAIN_SHARE * fills:
        allowed = (ms for ms in _STALENESS_MS if in_vain * ms / 1000 >= _ENDS_WITHIN * up_s)
        if (milliseconds := next(allowed, None)) is None:
            return None
        took = row["mysql_mean_s"]
        each = "" if took is None else f", {1000 * took:.2f} ms of MySQL's each"
        why = f"{counted}; {in_vain} of them came back the same after a write{each}"
        return Suggestion(why, rule | {"max_staleness_ms": milliseconds}, in_vain)
    if hits < _NEVER_HIT_SHARE * fills:
        return Suggestion(counted, rule | {"off": True}, fills)
    return None


def _shown(found: Sequence[Suggestion], statements: int, up_s: float) -> Iterator[str]:
    if up_s < LEAST_UP_S:
        yield f"# Nothing to suggest yet: it runs for {up_s:.0f} s, ask after {LEAST_UP_S:.0f}."
        return
    if not found:
        yield f"# Nothing to suggest: the figures of {statements} statements speak for no rule."
        return
    yield "# Put them before rules that are more general: of each setting the first rule decides."
    for each in found:
        yield f"\n# {each.why}"
        if "max_staleness_ms" in each.rule:
            yield "# With this rule an answer may be behind a write by so much. Is that all right?"
        yield toml.table("rules", each.rule)
