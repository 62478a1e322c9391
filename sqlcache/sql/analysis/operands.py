"""What a query may convert to another type, as far as a time of day may become a date by it.

MySQL and MariaDB put the date of today before a TIME that is to be a date: in
`CAST(opens_at AS DATETIME)`, `YEAR(opens_at)`, `opens_at < created_at` and
`COALESCE(opens_at, created_at)`. The answer is another one tomorrow, though no row has changed. A
text does not say which columns are TIMEs, so this gives the names of those that matter if they are.

Source: https://dev.mysql.com/doc/refman/9.4/en/date-and-time-type-conversion.html; that comparing
with a string or a number converts no TIME to a date, and which functions do, was found by asking
MySQL 9.7 and MariaDB 10.11 with several values of @@timestamp. Whether STR_TO_DATE makes a TIME is
for `literals` to say.
"""

from collections.abc import Iterator, Sequence
from sys import intern

from sqlcache.sql.analysis.cursor import NAMES
from sqlcache.sql.analysis.literals import ends_in_literal
from sqlcache.sql.analysis.lookaround import NOTHING, Lookaround, closings
from sqlcache.sql.lexer import Kind, Token, word_set
from sqlcache.sql.statement import Operands

_MAKE_DATES = word_set(
    "ADDDATE ADD_MONTHS CONVERT_TZ",
    "DATE DATEDIFF DATETIME DATE_ADD DATE_FORMAT DATE_SUB DAY DAYNAME",
    "DAYOFMONTH DAYOFWEEK DAYOFYEAR EXTRACT FROM_DAYS FROM_UNIXTIME LAST_DAY MAKEDATE MONTH",
    "MONTHNAME QUARTER STR_TO_DATE SUBDATE TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF TO_CHAR TO_DAYS",
    "TO_SECONDS UNIX_TIMESTAMP WEEK WEEKDAY WEEKOFYEAR YEAR YEARWEEK",
)
_MAKE_TIMES = word_set("ADDTIME MAKETIME SEC_TO_TIME STR_TO_DATE SUBTIME TIME TIMEDIFF")
_DATE_TYPES = frozenset(("DATE", "DATETIME", "TIMESTAMP", "YEAR"))
_BY_PLACE = frozenset(("UNION", "EXCEPT", "INTERSECT", "MINUS", "NATURAL"))

_BEFORE_ITEM = word_set("SELECT DISTINCT DISTINCTROW ALL BY")
_AFTER_ITEM = word_set("FROM ASC DESC LIMIT HAVING ORDER GROUP WITH WINDOW FOR WHERE")
_BEFORE_CONDITION = word_set("SELECT DISTINCT WHERE AND OR XOR NOT ON HAVING WHEN")
_AFTER_CONDITION = _AFTER_ITEM | word_set(
    "AND OR XOR THEN AS JOIN LEFT INNER RIGHT CROSS STRAIGHT_JOIN"
)
_BEFORE_DERIVED = word_set("FROM JOIN STRAIGHT_JOIN LATERAL")
_BEFORE_STAR = word_set(
    "SELECT ALL DISTINCT DISTINCTROW HIGH_PRIORITY STRAIGHT_JOIN SQL_SMALL_RESULT SQL_BIG_RESULT"
    " SQL_BUFFER_RESULT SQL_CACHE SQL_NO_CACHE SQL_CALC_FOUND_ROWS"
)
_QUERIES = word_set("SELECT TABLE VALUES WITH")
_LITERALS = (Kind.STRING, Kind.NUMBER)


def operands(tokens: Sequence[Token], *, dated: bool = False) -> Operands:
    """What a query's tokens (no hints among them) may convert. `dated`: each STR_TO_DATE that may
    have a literal format is taken to make a date by it."""
    return _Reader(tokens, dated=dated).read()


class _Reader(Lookaround):
    def __init__(self, tokens: Sequence[Token], *, dated: bool) -> None:
        super().__init__(tokens)
        self._dated = dated
        self._depths: list[int] = []
        self._closed_at = closings(tokens)
        self._by_place = any(token.word in _BY_PLACE for token in tokens)
        # What an outermost select list calls a column, or a TIME that is none, whose name is "".
        self._aliases: dict[str, str] = {}
        self._alias_at: set[int] = set()
        self._unnamed: list[int] = []  # how often columns are not named, up to each token
        self._around: list[int] = []  # the parenthesis that each token is in; -1 for none
        self._nest()

    def _nest(self) -> None:
        unnamed = 0
        opened = [-1]
        for at, token in enumerate(self._tokens):
            if token.is_operator(b")") and len(opened) > 1:
                opened.pop()
            self._depths.append(len(opened) - 1)
            self._around.append(opened[-1])
            if token.is_operator(b"("):
                opened.append(at)
            self._unnamed.append(unnamed)
            unnamed += token.word == "TABLE" or self._is_star(at)

    def _is_star(self, at: int) -> bool:
        """Whether it stands for columns: it is neither that of a product nor COUNT's."""
        if not self._tokens[at].is_operator(b"*"):
            return False
        before = self._token(at - 1)
        return before.text in (b",", b".") or before.word in _BEFORE_STAR

    def read(self) -> Operands:
        names: set[str] = set()
        dates = False
        for at, token in enumerate(self._tokens):
            following = self._token(at + 1)
            dates = dates or self._makes_date(at)
            if token.kind not in NAMES or following.text == b".":
                continue
            converted = token.word == "TIME" and self._is_type(at)
            if converted or self._converts_time(at):
                names.add("")
            name = intern(token.name.lower())
            called = following.is_operator(b"(")
            if not called and at not in self._alias_at and not self._is_harmless(at, at, name):
                names.add(name)
        for alias, name in self._aliases.items():
            if alias in names:
                names.add(name)
        return Operands(frozenset(names - {""}), "" in names, dates, self._has_unnamed())

    def _is_type(self, at: int) -> bool:
        """Whether a word that may be a type is one: in CAST, CONVERT, JSON_VALUE or JSON_TABLE."""
        before, following = self._token(at - 1), self._token(at + 1)
        ends = following.is_operator(b")") or following.word == "PATH"
        return ends or before.word == "RETURNING"

    def _makes_date(self, at: int) -> bool:
        token, following = self._tokens[at], self._token(at + 1)
        if token.kind is Kind.PARAMETER or token.word == "INTERVAL":
            return True
        if following.is_operator(b"("):
            return token.word in _MAKE_DATES
        return token.word in _DATE_TYPES and (following.kind is Kind.STRING or self._is_type(at))

    def _converts_time(self, at: int) -> bool:
        """Whether a TIME that is no column begins there, and may be converted."""
        end = self._end_of_time(at)
        if end is None:
            return False
        is_format = self._tokens[at].word == "STR_TO_DATE" and ends_in_literal(self._tokens, end)
        is_date = self._dated and is_format
        return not self._is_harmless(at, end, None if is_date else "") and not is_date

    def _end_of_time(self, at: int) -> int | None:
        """Where a TIME that is no column ends, if it begins here with its first word."""
        word, following = self._tokens[at].word, self._token(at + 1)
        if following.is_operator(b"(") and word in _MAKE_TIMES:
            return self._closed_at.get(at + 1, at + 1)
        return at + 1 if word == "TIME" and following.kind is Kind.STRING else None

    def _is_harmless(self, at: int, end: int, name: str | None) -> bool:
        """Whether what stands there stays a TIME if it is one: it is sent as it is, orders rows,
        or is compared with a literal. What is sent under another name is noted, but for a date,
        which has no `name`."""
        start = self._path_to(at)
        return self._is_item(start, end, name) or self._is_compared(start, end)

    def _is_item(self, start: int, end: int, name: str | None) -> bool:
        before = self._token(start - 1)
        if self._depths[start] or self._by_place:
            return False
        if before.word not in _BEFORE_ITEM and not before.is_operator(b","):
            return False
        after = end + 1
        if self._token(after).word == "AS":
            after += 1
        elif self._ends_item(after):
            return True
        alias = self._token(after)
        # An alias that is a string is not looked at: another one has the same shape.
        if alias.kind not in NAMES or not self._ends_item(after + 1):
            return False
        if name is not None:
            self._aliases[alias.name.lower()] = name
        self._alias_at.add(after)
        return True

    def _ends_item(self, at: int) -> bool:
        token = self._token(at)
        return token is NOTHING or token.is_operator(b",") or token.word in _AFTER_ITEM

    def _is_compared(self, start: int, end: int) -> bool:
        before = self._token(start - 1)
        opens = before.is_operator(b"(") or before.is_operator(b",")
        if not opens and before.word not in _BEFORE_CONDITION:
            return False
        if before.word == "AND" and self._is_in_between(start - 1):
            return False
        at = end + 1
        if self._token(at).word == "IS":
            return True
        if self._token(at).word == "NOT":
            at += 1
        return any(self._ends(end, _AFTER_CONDITION) for end in self._ends_of_comparison(at))

    def _is_in_between(self, at: int) -> bool:
        """Whether the AND there may be that of a BETWEEN."""
        while at > 0:
            at -= 1
            word = self._tokens[at].word
            if word == "BETWEEN":
                return True
            if word in _BEFORE_CONDITION:
                return False
        return False

    def _ends_of_comparison(self, at: int) -> Iterator[int]:
        """The index after a comparison with literals that begins here, if one does."""
        token = self._token(at)
        if (self._compares(at) or token.word == "LIKE") and self._token(at + 1).kind in _LITERALS:
            yield at + 2
        limits = (self._token(at + 1).kind, self._token(at + 3).kind)
        if token.word == "BETWEEN" and all(kind in _LITERALS for kind in limits):
            yield at + 4
        if token.word == "IN" and at + 1 in self._closed_at:
            closed = self._closed_at[at + 1]
            if all(map(self._is_literal, range(at + 2, closed))):
                yield closed + 1

    def _is_literal(self, at: int) -> bool:
        token = self._tokens[at]
        return token.kind in _LITERALS or token.is_operator(b",")

    def _has_unnamed(self) -> bool:
        if any(token.word == "NATURAL" for token in self._tokens):
            return True
        if self._by_place:
            return any(token.is_operator(b"*") or token.word == "TABLE" for token in self._tokens)
        return any(map(self._is_unnamed, range(len(self._tokens))))

    def _is_unnamed(self, at: int) -> bool:
        """Whether a subquery begins here that does not name all that it gives, and that may be
        converted, or is known by other names from there on."""
        opens = self._tokens[at].is_operator(b"(") and at in self._closed_at
        if not opens or self._token(at + 1).word not in _QUERIES:
            return False
        end = self._closed_at[at]
        if self._unnamed[end] == self._unnamed[at] and self._token(at + 1).word != "WITH":
            return False
        return not (self._only_nested(at) or self._is_asked_for(at) or self._keeps_names(at, end))

    def _only_nested(self, at: int) -> bool:
        """Whether nothing but parentheses is before it: it is all of the query."""
        return self._depths[at] == at

    def _is_asked_for(self, at: int) -> bool:
        return self._token(at - 1).word == "EXISTS"

    def _keeps_names(self, at: int, end: int) -> bool:
        """Whether it is a table of a query or a WITH clause, and no list renames its columns."""
        before = self._token(at - 1)
        if before.word == "AS":
            return self._token(at - 2).kind in NAMES
        if before.word not in _BEFORE_DERIVED:
            return False
        if before.word == "FROM" and not self._is_of_query(at - 1):
            return False
        alias = end + 2 if self._token(end + 1).word == "AS" else end + 1
        return not self._token(alias + 1).is_operator(b"(")

    def _is_of_query(self, at: int) -> bool:
        """Whether the FROM there is, and not that of EXTRACT or TRIM."""
        around = self._around[at]
        return around < 0 or self._token(around + 1).word in _QUERIES
