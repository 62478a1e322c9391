"""Queries: which tables one reads, and whether its answer may be cached.

Default deny: each word is judged, and the tables are found twice, from our own tokens and by
sqlglot; both must agree.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.parsers.mysql import MySQLParser

from sqlcache.sql.analysis import literals
from sqlcache.sql.analysis.calls import Use, function_use, with_functions
from sqlcache.sql.analysis.cursor import NAMES, Cursor
from sqlcache.sql.analysis.lookaround import closings
from sqlcache.sql.analysis.markers import markers
from sqlcache.sql.analysis.operands import operands
from sqlcache.sql.analysis.ranks import are_by_score
from sqlcache.sql.functions import AGGREGATES_AND_WINDOWS, MAKE_ROWS
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import Token, word_set
from sqlcache.sql.statement import FoundRows, Kind, Statement, Told
from sqlcache.sql.tables import MAX_NESTING, Tables, scan_tables

MOST_TOKENS = 8_000
"""Of a query that is read in full, lists of literals and of parameters counted as one: more take
too long."""

_MYSQL = MySQL()
_STEPS_A_TOKEN, _FEW_STEPS = 8, 400
"""sqlglot takes one or two for each, 6 µs each."""

_SYSTEM_SCHEMAS = frozenset(("information_schema", "performance_schema", "mysql", "sys"))
_REFUSED_WORDS = {
    "INTO": "stores its answer with INTO",
    "LOCK": "locks what it reads with LOCK IN SHARE MODE",
    "SQL_NO_CACHE": "asks for SQL_NO_CACHE",
    "PROCEDURE": "calls a PROCEDURE",
    "SYSTEM_TIME": "reads another time's rows",
    "TABLESAMPLE": "reads a sample",
}
_REFUSED_FOR = {
    "UPDATE": "locks what it reads with FOR UPDATE",
    "SHARE": "locks what it reads with FOR SHARE",
    "SYSTEM_TIME": "reads another time's rows",
}
_REFUSED_KINDS = {
    TokenKind.USER_VARIABLE: "uses a user variable",
    TokenKind.SYSTEM_VARIABLE: "uses a system variable",
    TokenKind.VERSIONED: "holds a versioned comment",
    TokenKind.OTHER: "holds a byte the grammar has no use for",
}
_REFUSED_OPERATORS = {
    b":=": "assigns a variable",
    b"{": "holds an ODBC escape",
    b"}": "holds an ODBC escape",
    b":": "holds a colon",
    b";": "holds a semicolon",
}
_COUNT_ALL = "SQL_CALC_FOUND_ROWS"
_SELECT_OPTIONS = word_set(
    "ALL DISTINCT DISTINCTROW HIGH_PRIORITY STRAIGHT_JOIN SQL_SMALL_RESULT SQL_BIG_RESULT"
    " SQL_BUFFER_RESULT SQL_CACHE"
)
_QUERIES = word_set("SELECT VALUES TABLE")
_MAY_SPARE_READING = word_set("WHERE HAVING ON USING LIMIT FETCH NATURAL PARTITION")
_MAKE_SUMS = word_set("ROLLUP CUBE")  # a row for nothing, too
_COUNT_VALUES = word_set("SELECT ORDER UNION EXCEPT INTERSECT MINUS INTO")
_OPERATIONS = frozenset(("UNION", "EXCEPT", "INTERSECT", "MINUS"))
_BEFORE_CONDITIONS = word_set("WHERE ON AND OR XOR NOT")
_AFTER_CONDITIONS = word_set("AND OR XOR GROUP ORDER HAVING LIMIT UNION EXCEPT INTERSECT WINDOW")
_BEFORE_OTHER_LISTS = frozenset(("SELECT", "FROM", "LIMIT", "VALUES"))
_ESCAPES = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}
_INDEX_HINT_SCOPES = frozenset(("JOIN", "ORDER", "GROUP"))


def query(cursor: Cursor) -> Statement:
    """SELECT, TABLE, VALUES and what starts with a parenthesis, perhaps after a WITH clause."""
    cursor.tokens = _without_escapes(cursor.tokens)
    tables = scan_tables(cursor.tokens)
    use = function_use(cursor, cursor.tokens, tables.column_lists)
    reason = _refusal(cursor, tables, use)
    verb = cursor.word or "SELECT"
    statement = Statement(
        verb,
        Kind.READ,
        tables.refs,
        not reason,
        reason,
        counts_all=any(token.word == _COUNT_ALL for token in cursor.tokens),
        proof_rows=_proof_rows(cursor, use),
        after=FoundRows.KEPT if _is_bare_values(cursor, use) else FoundRows.UNSURE,
    )
    if statement.cacheable:
        statement = replace(
            _with_operands(statement, cursor.tokens),
            markers=markers(cursor.tokens),
            of_used_schema=_makes_texts(cursor.tokens),
        )
    return with_functions(statement, use)


def _with_operands(statement: Statement, tokens: Sequence[Token]) -> Statement:
    plain = dated = operands(tokens)
    may_tell = literals.may_tell(tokens)
    if Told.DATES in may_tell:
        dated = operands(tokens, dated=True)
        may_tell = may_tell if dated != plain else may_tell & ~Told.DATES
    return replace(statement, operands=plain, dated=dated, may_tell=may_tell)


def _makes_texts(tokens: Sequence[Token]) -> bool:
    """Whether a JSON_TABLE has columns of texts. Where it says of which character set they are the
    query is not cacheable anyway."""
    if not any(token.word == "JSON_TABLE" for token in tokens):
        return False
    closed_at = closings(tokens)
    end = 0
    for at, token in enumerate(tokens):
        if token.word == "JSON_TABLE":
            end = max(end, closed_at.get(at + 1, 0))
        if at < end and token.word in _TEXT_TYPES:
            return True
    return False


_TEXT_TYPES = word_set(
    "CHAR CHARACTER VARCHAR VARCHARACTER VARCHAR2 TINYTEXT TEXT MEDIUMTEXT LONGTEXT LONG CLOB ENUM",
    "SET",
)


def _is_bare_values(cursor: Cursor, use: Use) -> bool:
    """Whether it is a list of rows and no more, as MariaDB writes it, which does not count them."""
    opens = [token.text.upper() for token in cursor.tokens[:2]] == [b"VALUES", b"("]
    counts = any(token.word in _COUNT_VALUES for token in cursor.tokens)
    return opens and not (counts or use.stored or use.declared)


def _proof_rows(cursor: Cursor, use: Use) -> int | None:
    """See `Statement.proof_rows`. A single SELECT has to look at a row for each that it answers, if
    it makes none out of nothing, as an aggregate does; and in any case where no condition can be
    found impossible."""
    words = [token.word for token in cursor.tokens]
    single = words[:1] == ["SELECT"] and sum(map(_QUERIES.__contains__, words)) == 1
    if not single or use.names & MAKE_ROWS or use.stored or use.declared:
        return None
    if not _MAKE_SUMS.isdisjoint(words):
        return None
    if _MAY_SPARE_READING.isdisjoint(words):
        return 0
    return None if use.names & AGGREGATES_AND_WINDOWS else 1


def _without_escapes(tokens: list[Token]) -> list[Token]:
    """The tokens with ODBC's `{d '...'}` as `DATE '...'`, and its like."""
    opened: list[Token] = []
    for token in tokens:
        if not token.is_operator(b"}") or len(opened) < 3 or opened[-3].text != b"{":
            opened.append(token)
            continue
        word, literal = opened[-2:]
        name = _ESCAPES.get(word.word)
        if name is None or literal.kind is not TokenKind.STRING:
            return tokens
        opened[-3:] = [word._replace(text=name.encode(), word=name), literal]
    return opened


def _refusal(cursor: Cursor, tables: Tables, use: Use) -> str:
    """Why a query must not be cached; "" if it may."""
    closed_at = closings(cursor.tokens)
    for at, token in enumerate(cursor.tokens):
        reason = _token_refusal(cursor, at, token)
        if token.word == "MATCH":
            reason = _refusal_of_match(cursor, at, closed_at)
        if reason:
            return reason
    if are_by_score(cursor.tokens):
        return "gives rows in the order of their scores in a MATCH"
    if reason := _refusal_of_count(cursor):
        return reason
    if _places(cursor.tokens):
        return "orders or groups by a parameter"
    if reason := _refusal_of_patterns(cursor):
        return reason
    if any(b"SET_VAR" in hint.text.upper() for hint in cursor.hints):
        return "sets a variable in a hint"
    if use.stored:
        return f"calls {use.stored}(), which is not built in"
    if use.not_cacheable:
        return f"calls {use.not_cacheable}(), which is not deterministic"
    if use.sequences or use.odd_sequence:
        return "uses a sequence"
    for routine in use.declared:
        if routine.writes:
            return f"calls {routine.name}(), which writes"
    if len(cursor.tokens) > MOST_TOKENS:
        return "is too long to be judged"
    return _tables_refusal(tables, use) or _disagreement(cursor, tables)


def _refusal_of_count(cursor: Cursor) -> str:
    """Of SQL_CALC_FOUND_ROWS, unless it is for all of a query that is no prepared statement."""
    words = [token.word for token in cursor.tokens]
    if _COUNT_ALL not in words:
        return ""
    if cursor.options.parameters_allowed:
        return f"is prepared with {_COUNT_ALL}"
    at = 1
    while words[at : at + 1] and words[at] in _SELECT_OPTIONS:
        at += 1
    leads = words[0] == "SELECT" and words[at : at + 1] == [_COUNT_ALL]
    alone = words.count(_COUNT_ALL) == 1 and _OPERATIONS.isdisjoint(words)
    return "" if leads and alone else f"has {_COUNT_ALL} elsewhere than in a single SELECT"


def _tables_refusal(tables: Tables, use: Use) -> str:
    if tables.doubt:
        return f"its tables are not certain: {tables.doubt}"
    read = tables.refs.union(*(routine.reads for routine in use.declared))
    if not read:
        return "reads no table"
    for ref in read:
        if ref.schema is not None and ref.schema.lower() in _SYSTEM_SCHEMAS:
            return f"reads {ref.schema}"
    return ""


def _token_refusal(cursor: Cursor, at: int, token: Token) -> str:
    if token.word == "FOR":
        harmless = _is_for_a_length_or_index_hint(cursor.tokens[at + 1 : at + 2])
        if harmless:
            return ""
        if at and cursor.tokens[at - 1].word == "VALUE":
            return "uses a sequence"
        following = cursor.tokens[at + 1].word if at + 1 < len(cursor.tokens) else ""
        return _REFUSED_FOR.get(following, "holds a FOR that is not understood")
    if token.word:
        return _REFUSED_WORDS.get(token.word, "")
    if token.kind is TokenKind.OPERATOR:
        return _REFUSED_OPERATORS.get(token.text, "")
    if token.kind is TokenKind.PARAMETER and not cursor.options.parameters_allowed:
        return "holds a parameter marker outside a prepared statement"
    return _REFUSED_KINDS.get(token.kind, "")


def _is_for_a_length_or_index_hint(following: Sequence[Token]) -> bool:
    """Whether FOR stands in SUBSTRING(a FROM 1 FOR 2), or in USE INDEX FOR JOIN (i)."""
    lengths = (TokenKind.NUMBER, TokenKind.PARAMETER)
    return any(t.kind in lengths or t.word in _INDEX_HINT_SCOPES for t in following)


def _refusal_of_patterns(cursor: Cursor) -> str:
    """Of regular expressions: MariaDB remembers of a parameter that it was none."""
    tokens = cursor.tokens
    has_patterns = any(_may_be_none(tokens, at) for at in range(len(tokens)))
    has_parameters = any(token.kind is TokenKind.PARAMETER for token in cursor.tokens)
    both = has_patterns and has_parameters
    return "holds a regular expression and a parameter" if both else ""


def _may_be_none(tokens: Sequence[Token], at: int) -> bool:
    """Whether a regular expression is there, unless it is a column's with a literal."""
    word = tokens[at].word
    if not word.startswith("REGEXP") and word != "RLIKE":
        return False
    subject = at - 2 if tokens[at - 1].word == "NOT" else at - 1
    pattern, after = tokens[at + 1 : at + 2], tokens[at + 2 : at + 3]
    of_column = subject >= 0 and tokens[subject].kind in NAMES
    alone = all(t.word in _AFTER_CONDITIONS or t.is_operator(b")") for t in after)
    return not (of_column and alone and all(t.kind is TokenKind.STRING for t in pattern))


def _refusal_of_match(cursor: Cursor, at: int, closed_at: dict[int, int]) -> str:
    """Of a MATCH ... AGAINST that is more than a condition: InnoDB's scores count rows that others
    have written and not committed."""
    before = at - 1
    while before >= 0 and cursor.tokens[before].is_operator(b"("):
        before -= 1
    if before < 0 or cursor.tokens[before].word not in _BEFORE_CONDITIONS:
        return "computes a score with MATCH"
    against = closed_at.get(at + 1, at) + 1
    after = closed_at.get(against + 1)
    if after is None or cursor.tokens[against].word != "AGAINST":
        return "has a MATCH that is not understood"
    after += 1
    furthest = min(after + MAX_NESTING, len(cursor.tokens))  # each in one more would walk them all
    while after < furthest and cursor.tokens[after].is_operator(b")"):
        after += 1
    ends = after == len(cursor.tokens) or cursor.tokens[after].word in _AFTER_CONDITIONS
    return "" if ends else "computes a score with MATCH"


def _places(tokens: Sequence[Token]) -> frozenset[int]:
    """The parameters that may be items of ORDER BY or GROUP BY. MariaDB takes such a one for the
    place of a column, and in some statements that of the first execution for ever after."""
    places: set[int] = set()
    listing = [""]  # for each parenthesis it is in, which list it is in
    opened = 0  # just before
    for at, token in enumerate(tokens):
        if token.kind is TokenKind.PARAMETER:
            before = tokens[at - 1 - opened] if at > opened else token
            begins = before.word == "BY" or before.is_operator(b",")
            if begins and listing[-1 - opened] == "BY":
                places.add(at)
        elif token.word == "BY" or token.word in _BEFORE_OTHER_LISTS:
            listing[-1] = token.word
        elif token.is_operator(b"("):
            listing.append("")
        elif token.is_operator(b")") and len(listing) > 1:
            listing.pop()
        opened = opened + 1 if token.is_operator(b"(") else 0
    return frozenset(places)


def _disagreement(cursor: Cursor, tables: Tables) -> str:
    """Why sqlglot's reading of a query differs from ours; "" if it does not.

    sqlglot reads our tokens, written anew so that it needs to know neither sql_mode nor comments.
    Both must name the same tables, common table expressions included.
    """
    text = _plain_text(cursor.tokens)
    try:
        tokens = _MYSQL.tokenize(text)
        trees = _Parser(len(tokens)).parse(tokens, text)
    except _TooManyStepsError:
        return "may be read in too many ways"
    except Exception:  # a parser of many dialects may fail in any way on odd text
        return "sqlglot cannot parse it"
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query) or tree.find(exp.Command):
        return "sqlglot does not read it as a query"
    theirs = set()
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.JSONTable):
            continue
        if not isinstance(table.this, exp.Identifier):
            return "sqlglot reads a table that is no name"
        if table.name.upper() != "DUAL" or table.db or table.this.quoted:
            theirs.add((table.catalog, table.db, table.name))
    ours = {("", factor.ref.schema or "", factor.ref.name) for factor in tables.factors}
    return "" if ours == theirs else "sqlglot reads other tables in it"


class _TooManyStepsError(Exception):
    pass


class _Parser(MySQLParser):
    """Reads so many tokens, some again where it went wrong, but not all of them again and again:
    each JOIN without a condition, and each YEAR( in another, doubles the ways to read a text.

    Raises: _TooManyStepsError.
    """

    def __init__(self, tokens: int) -> None:
        self._steps_left = _FEW_STEPS + _STEPS_A_TOKEN * tokens
        super().__init__(dialect=_MYSQL)

    def _advance(self, times: int = 1) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise _TooManyStepsError
        super()._advance(times)


try:
    _Parser(0)
except TypeError:  # it is of a class that was compiled
    raise ImportError(
        "sqlcache counts the steps of sqlglot's parser, which its compiled form does not allow:"
        " uninstall sqlglotc"
    ) from None


def _plain_text(tokens: Sequence[Token]) -> str:
    """The tokens written anew, literals without content."""
    return " ".join(map(_plainly, tokens))


def _plainly(token: Token) -> str:
    if token.kind is TokenKind.STRING:
        return "'$'"
    if token.kind is TokenKind.NUMBER:
        return "1"
    if token.kind is TokenKind.NAME:
        return "`" + token.name.replace("`", "``") + "`"
    return token.name
