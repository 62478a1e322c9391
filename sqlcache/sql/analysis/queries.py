"""Queries: which tables one reads, and whether its answer may be cached.

Default deny: each word is judged, and the tables are found twice, from our own tokens and by
sqlglot; both must agree.
"""

from collections.abc import Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp

from sqlcache.sql.analysis.calls import Use, function_use, with_functions
from sqlcache.sql.analysis.cursor import Cursor
from sqlcache.sql.analysis.markers import markers
from sqlcache.sql.analysis.operands import operands
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import Token, word_set
from sqlcache.sql.statement import Kind, Statement
from sqlcache.sql.tables import Tables, scan_tables

_SYSTEM_SCHEMAS = frozenset(("information_schema", "performance_schema", "mysql", "sys"))
_REFUSED_WORDS = {
    "INTO": "stores its answer with INTO",
    "LOCK": "locks what it reads with LOCK IN SHARE MODE",
    "SQL_CALC_FOUND_ROWS": "leaves a count for FOUND_ROWS()",
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
_BEFORE_CONDITIONS = word_set("WHERE ON AND OR XOR NOT")
_AFTER_CONDITIONS = word_set("AND OR XOR GROUP ORDER HAVING LIMIT UNION EXCEPT INTERSECT WINDOW")
_BEFORE_OTHER_LISTS = frozenset(("SELECT", "FROM", "LIMIT", "VALUES"))
_INDEX_HINT_SCOPES = frozenset(("JOIN", "ORDER", "GROUP"))


def query(cursor: Cursor) -> Statement:
    """SELECT, TABLE, VALUES and what starts with a parenthesis, perhaps after a WITH clause."""
    tables = scan_tables(cursor.tokens)
    use = function_use(cursor, cursor.tokens, tables.column_lists)
    reason = _refusal(cursor, tables, use)
    verb = cursor.word or "SELECT"
    statement = Statement(verb, Kind.READ, reads=tables.refs, cacheable=not reason, reason=reason)
    if statement.cacheable:
        statement = replace(
            statement, operands=operands(cursor.tokens), markers=markers(cursor.tokens)
        )
    return with_functions(statement, use)


def _refusal(cursor: Cursor, tables: Tables, use: Use) -> str:
    """Why a query must not be cached; "" if it may."""
    for at, token in enumerate(cursor.tokens):
        reason = _token_refusal(cursor, at, token)
        if reason:
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
    return _tables_refusal(tables, use) or _disagreement(cursor, tables)


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
    if token.word == "MATCH":
        return _refusal_of_match(cursor, at)
    if token.word:
        return _REFUSED_WORDS.get(token.word, "") or _refusal_of_pattern(cursor, at)
    if token.kind is TokenKind.OPERATOR:
        return _REFUSED_OPERATORS.get(token.text, "")
    if token.kind is TokenKind.PARAMETER:
        if not cursor.options.parameters_allowed:
            return "holds a parameter marker outside a prepared statement"
        if _is_place(cursor.tokens, at):
            return "orders or groups by a parameter"
    return _REFUSED_KINDS.get(token.kind, "")


def _is_for_a_length_or_index_hint(following: Sequence[Token]) -> bool:
    """Whether FOR stands in SUBSTRING(a FROM 1 FOR 2), or in USE INDEX FOR JOIN (i)."""
    lengths = (TokenKind.NUMBER, TokenKind.PARAMETER)
    return any(t.kind in lengths or t.word in _INDEX_HINT_SCOPES for t in following)


def _refusal_of_pattern(cursor: Cursor, at: int) -> str:
    """Of a regular expression: MariaDB remembers of a parameter that it was none."""
    word = cursor.tokens[at].word
    if not word.startswith("REGEXP") and word != "RLIKE":
        return ""
    has_parameters = any(token.kind is TokenKind.PARAMETER for token in cursor.tokens)
    return "holds a regular expression and a parameter" if has_parameters else ""


def _refusal_of_match(cursor: Cursor, at: int) -> str:
    """Of a MATCH ... AGAINST that is more than a condition: InnoDB's scores count rows that others
    have written and not committed."""
    before = at - 1
    while before >= 0 and cursor.tokens[before].is_operator(b"("):
        before -= 1
    if before < 0 or cursor.tokens[before].word not in _BEFORE_CONDITIONS:
        return "computes a score with MATCH"
    while at < len(cursor.tokens) and cursor.tokens[at].word != "AGAINST":
        at += 1
    depth = 0
    for token in cursor.tokens[at + 1 :]:
        depth += token.is_operator(b"(") - token.is_operator(b")")
        if depth <= 0 and not token.is_operator(b")"):
            return "" if token.word in _AFTER_CONDITIONS else "computes a score with MATCH"
    return ""


def _is_place(tokens: Sequence[Token], at: int) -> bool:
    """Whether a parameter may be an item of ORDER BY or GROUP BY. MariaDB takes it for the place of
    a column, and in some statements that of the first execution for ever after."""
    at -= 1
    while at >= 0 and tokens[at].is_operator(b"("):
        at -= 1
    if at < 0 or not (tokens[at].word == "BY" or tokens[at].is_operator(b",")):
        return False
    depth = 0
    for token in reversed(tokens[: at + 1]):
        depth += token.is_operator(b")") - token.is_operator(b"(")
        if depth < 0 or (depth == 0 and token.word in _BEFORE_OTHER_LISTS):
            return False
        if depth == 0 and token.word == "BY":
            return True
    return False


def _disagreement(cursor: Cursor, tables: Tables) -> str:
    """Why sqlglot's reading of a query differs from ours; "" if it does not.

    sqlglot reads our tokens, written anew so that it needs to know neither sql_mode nor comments.
    Both must name the same tables, common table expressions included.
    """
    try:
        trees = sqlglot.parse(_plain_text(cursor.tokens), dialect="mysql")
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


def _plain_text(tokens: Sequence[Token]) -> str:
    """The tokens written anew: literals without content, long lists of them cut to one."""
    plain: list[str] = []
    for token in tokens:
        text = _plainly(token)
        if text in _PLAIN_LITERALS and plain[-1:] == [","] and plain[-2] == text:
            plain.pop()
        else:
            plain.append(text)
    return " ".join(plain)


_PLAIN_LITERALS = ("'$'", "1")


def _plainly(token: Token) -> str:
    if token.kind is TokenKind.STRING:
        return "'$'"
    if token.kind is TokenKind.NUMBER:
        return "1"
    if token.kind is TokenKind.NAME:
        return "`" + token.name.replace("`", "``") + "`"
    return token.name
