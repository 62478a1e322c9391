"""How an answer that may be cached is to be: rules of the operator, and words of the app.

The laws:

- None of it makes a statement cacheable. It can only forbid, or say how long and how fresh.
- Each table an answer depends on is judged by itself: of each setting, the first rule that matches
  and gives it decides, and what no rule gives has its default. An answer from several tables gets
  the strictest of what they may have.
- What the app says, in a comment or in `@sqlcache`, is as a rule before all others; but what a rule
  switches off it cannot switch on. What it says and nobody understands switches the cache off.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.forms import normalised
from sqlcache.sql.lexer import Lexed
from sqlcache.sql.names import TableName
from sqlcache.sql.pieces import Dialect, split

LONGEST_S: Final = 30 * 86_400
"""The longest life: memcached takes a larger number for a date."""

DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Terms:
    """What somebody asks for; None is what they do not speak of."""

    off: bool | None = None
    ttl_s: int | None = None
    max_staleness_s: float | None = None
    stale_while_revalidate_s: float | None = None
    row_tags: bool | None = None


NOTHING_SAID: Final = Terms()


class Source(NamedTuple):
    """Terms, and who asks for them, for people."""

    name: str
    terms: Terms


@dataclass(frozen=True, slots=True)
class Rule:
    """Terms for what meets every condition that is given; without conditions, for everything.

    `schema` and `table` are about what an answer depends on, views' own tables included; `user` is
    the login's name. `shape` is a statement as `forms.normalised` gives it, `pattern` is searched
    in the text as it was sent.
    """

    source: Source
    schema: str | None = None
    table: str | None = None
    user: str | None = None
    shape: bytes | None = None
    pattern: re.Pattern[str] | None = None

    def is_about(self, asked: "Asked") -> bool:
        """Whether a statement and its user meet the conditions on them."""
        return (
            (self.user is None or self.user == asked.user)
            and (self.shape is None or self.shape == asked.shape)
            and (self.pattern is None or self.pattern.search(asked.text) is not None)
        )

    def covers(self, table: TableName) -> bool:
        """Whether a table meets the conditions on tables."""
        return self.schema in (None, table.schema) and self.table in (None, table.name)


class Asked:
    """A statement as rules look at it, and what the app says of it."""

    def __init__(self, user: str, lexed: Lexed, words: tuple[Source, ...] = ()) -> None:
        self.user = user
        self.words = words
        self._lexed = lexed

    @cached_property
    def text(self) -> str:
        """The statement as it was sent."""
        return self._lexed.text.decode("utf-8", "surrogateescape")

    @cached_property
    def shape(self) -> bytes:
        """Its normal form."""
        return normalised(self._lexed.pieces, self._lexed.dialect)


class Chosen(NamedTuple):
    """One setting's value, and whose it is."""

    value: float
    by: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of an answer. `off` names who switched the cache off for it."""

    ttl_s: Chosen
    max_staleness_s: Chosen
    stale_while_revalidate_s: Chosen
    row_tags: Chosen
    """Whether it may be told apart by rows, where any are."""
    off: str | None = None


class Policy:
    """The rules, in their order, and the life of answers that no rule speaks of."""

    def __init__(self, rules: Iterable[Rule] = (), *, ttl_s: int) -> None:
        self.rules = tuple(rules)
        self.reads_texts = any(rule.pattern is not None for rule in self.rules)
        """Whether what it decides may hang on a statement's literals."""
        self._ttl_s = ttl_s
        self._default = Decision(
            Chosen(ttl_s, "cache.ttl_s"),
            Chosen(0, "default"),
            Chosen(0, "default"),
            Chosen(True, "default"),
        )

    def folded(self, fold: Callable[[str], str]) -> "Policy":
        """The same with tables' and schemas' names as the server compares them."""
        names = {
            rule: replace(
                rule,
                schema=None if rule.schema is None else fold(rule.schema),
                table=None if rule.table is None else fold(rule.table),
            )
            for rule in self.rules
        }
        return Policy(names.values(), ttl_s=self._ttl_s)

    def decide(self, tables: Iterable[TableName], asked: Asked) -> Decision:
        """What an answer from these tables may have."""
        if not self.rules and not asked.words:
            return self._default
        rules = [rule for rule in self.rules if rule.is_about(asked)]
        decisions = []
        for table in sorted(tables):
            sources = [rule.source for rule in rules if rule.covers(table)]
            decisions.append(self._decide([*asked.words, *sources], sources, asked.words))
        return _strictest(decisions)

    def _decide(
        self, sources: Sequence[Source], rules: Sequence[Source], words: Sequence[Source]
    ) -> Decision:
        forbidden = _first(rules, "off")
        off = forbidden.by if forbidden is not None and forbidden.value else None
        for word in words:
            off = off or (word.name if word.terms.off else None)
        default = self._default
        return Decision(
            _first(sources, "ttl_s") or default.ttl_s,
            _first(sources, "max_staleness_s") or default.max_staleness_s,
            _first(sources, "stale_while_revalidate_s") or default.stale_while_revalidate_s,
            _first(sources, "row_tags") or default.row_tags,
            off,
        )


def _first(sources: Iterable[Source], setting: str) -> Chosen | None:
    for source in sources:
        value = getattr(source.terms, setting)
        if value is not None:
            return Chosen(value, source.name)
    return None


def _strictest(decisions: Sequence[Decision]) -> Decision:
    """The shortest of each; the earliest where they are equal."""
    return Decision(
        min((each.ttl_s for each in decisions), key=_value),
        min((each.max_staleness_s for each in decisions), key=_value),
        min((each.stale_while_revalidate_s for each in decisions), key=_value),
        min((each.row_tags for each in decisions), key=_value),
        next((each.off for each in decisions if each.off is not None), None),
    )


def _value(chosen: Chosen) -> float:
    return chosen.value


def read_shape(statement: str) -> bytes:
    """The shape of a statement that a rule names. Raises: SqlSyntaxError."""
    text = statement.strip().removesuffix(";").encode()
    if not text:
        raise SqlSyntaxError("it is empty")
    dialect = Dialect()
    return normalised(split(text, dialect), dialect)


NOT_UNDERSTOOD: Final = Terms(off=True)
"""What is not understood may have been meant to switch the cache off."""

LONGEST_WORDS: Final = 200
"""Characters; what is longer is not understood."""

_TERM = re.compile(r"(\w+)\s*(?:=\s*([0-9]{1,9}(?:\.[0-9]{1,9})?))?")


def read_terms(text: str) -> Terms:
    """What the app says: `off`, or `ttl=SECONDS`, `max_staleness_ms=MILLISECONDS` and
    `stale_while_revalidate_s=SECONDS`, with commas or white space between them."""
    return NOT_UNDERSTOOD if len(text) > LONGEST_WORDS else _read_terms(text)


@lru_cache(maxsize=1024)
def _read_terms(text: str) -> Terms:
    terms = Terms()
    for part in re.split(r"[,\s]+(?=[a-z])", text.strip().rstrip(",").lower()):
        found = _TERM.fullmatch(part.strip())
        read = None if found is None else _read_term(found[1], found[2])
        if read is None:
            return NOT_UNDERSTOOD
        terms = replace(terms, **read)
    return terms


def _read_term(name: str, value: str | None) -> dict[str, Any] | None:
    if name == "off":
        return {"off": True} if value is None else None
    if value is None:
        return None
    number = float(value)
    if name == "ttl":
        in_range = number.is_integer() and 1 <= number <= LONGEST_S
        return {"ttl_s": int(number)} if in_range else None
    if name == "max_staleness_ms" and number <= DAY_S * 1000:
        return {"max_staleness_s": number / 1000}
    if name == "stale_while_revalidate_s" and number <= DAY_S:
        return {name: number}
    return None
