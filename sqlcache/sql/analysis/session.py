"""What changes the session alone: USE, PREPARE and SET.

A SET that cannot be read makes the session opaque; one of a global variable writes everything.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlcache.sql import functions
from sqlcache.sql.analysis.calls import function_use, with_functions
from sqlcache.sql.analysis.cursor import NAMES, Cursor, Options
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import Token, string_value, word_set
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import (
    LONGEST_VALUE,
    WORDS,
    Computed,
    Kind,
    Statement,
    everything,
    unknown,
)
from sqlcache.sql.tables import path_at, scan_tables


def use_schema(cursor: Cursor) -> Statement:
    """USE."""
    cursor.at += 1
    schema = cursor.name()
    if schema is None:
        return unknown("USE", "its schema cannot be read")
    return Statement("USE", Kind.SESSION, use_schema=schema)


def prepare(cursor: Cursor) -> Statement:
    """PREPARE and DEALLOCATE: no table is touched until EXECUTE."""
    verb = cursor.word
    cursor.at += 1
    if verb == "DEALLOCATE":
        cursor.take("PREPARE")
    named = _statement_name(cursor)
    ends = cursor.take("FROM") and len(cursor.rest) == 1
    text = _literal(cursor) if ends else None
    put_back = put_back_in(text) if verb == "PREPARE" else ()
    return Statement(verb, Kind.SESSION, named=named, text=text, settings=put_back)


# MariaDB sets them, and with each another one, also where it gives them back the value they had:
# after SET STATEMENT, whose variables it sets to prepare it, too.
_SETS_ANOTHER = ("max_join_size", "character_set_database", "character_set_server")


def put_back_in(text: str | None) -> tuple[tuple[str, Computed], ...]:
    """What may be set to the value that it has by this text, or another that is not known."""
    lower = None if text is None else text.lower()
    return tuple((name, Computed()) for name in _SETS_ANOTHER if lower is None or name in lower)


def execute(cursor: Cursor) -> Statement:
    """EXECUTE: who knows what was prepared may know what it runs."""
    statement = replace(unknown("EXECUTE", "what it runs is not in its text"), kind=Kind.OTHER)
    cursor.at += 1
    if cursor.take("IMMEDIATE"):
        return replace(statement, text=_literal(cursor))
    return replace(statement, named=_statement_name(cursor))


def _statement_name(cursor: Cursor) -> str | None:
    """Steps over a prepared statement's name; in lower case where it is ASCII."""
    name = cursor.name()
    return name.lower() if name is not None and name.isascii() else name


def _literal(cursor: Cursor) -> str | None:
    """A plain string that what is left begins with; None for another."""
    token = cursor.tokens[cursor.at] if cursor.at < len(cursor.tokens) else None
    following = cursor.tokens[cursor.at + 1 : cursor.at + 2]
    if token is None or token.kind is not TokenKind.STRING or token.text[:1] not in (b"'", b'"'):
        return None
    goes_on = following and following[0].word != "USING"
    return None if goes_on else string_value(token, cursor.options.dialect)


GLOBAL_SCOPES = frozenset(("GLOBAL", "PERSIST", "PERSIST_ONLY"))
_SESSION_SCOPES = frozenset(("SESSION", "LOCAL"))
_OF_A_TRANSACTION = frozenset(
    ("transaction_isolation", "tx_isolation", "transaction_read_only", "tx_read_only")
)
_AS_NUMBER = {"ON": "1", "TRUE": "1", "OFF": "0", "FALSE": "0"}


def set_variables(cursor: Cursor) -> Statement:
    """SET but for SET STATEMENT."""
    cursor.at += 1
    first = cursor.word
    if first in _SESSION_SCOPES and cursor.rest[1:2] and cursor.rest[1].word == "TRANSACTION":
        cursor.at += 1
        return _set_transaction(cursor, "")
    if first == "TRANSACTION":
        return _set_transaction(cursor, "next_")
    listed = _comma_separated(cursor.rest)
    of_accounts = any(map(_is_of_accounts, listed))
    if of_accounts or (first == "ROLE" and any(map(_assigns, listed))):
        return replace(everything("SET"), opaque_session=len(listed) > 1)
    if first == "ROLE":
        return Statement("SET", Kind.SESSION, opaque_session=True, sets_role=True)
    if first == "RESOURCE":
        return Statement("SET", Kind.SESSION)
    use = function_use(cursor, cursor.rest)
    reads = scan_tables(cursor.rest).refs
    parts = _assignments(listed, cursor.options)
    settings = tuple(setting for part in parts for setting in part.settings)
    changes_globals = any(part.is_global for part in parts)
    named = changes_globals and not use.stored and not use.sequences and not use.odd_sequence
    names = frozenset(part.global_name for part in parts if part.is_global)
    untold = frozenset(part.untold for part in parts if part.opaque)
    statement = Statement(
        "SET",
        Kind.SESSION,
        reads=reads,
        settings=settings,
        opaque_session=bool(untold) or bool(use.stored),
        untold=frozenset() if "" in untold or use.stored else untold,
        changes_globals=changes_globals,
        globals_set=names if named and "" not in names else frozenset(),
        writes_everything=changes_globals,
        may_commit=any(_ends_in_autocommit(token) for token in cursor.rest),
    )
    return with_functions(statement, use)


def _is_of_accounts(part: Sequence[Token]) -> bool:
    """Whether it changes a password or default role. To MariaDB it may be any of a SET's parts."""
    first, second = ([token.word for token in part[:2]] + ["", ""])[:2]
    return first == "PASSWORD" or (first, second) == ("DEFAULT", "ROLE")


def _assigns(part: Sequence[Token]) -> bool:
    return any(token.is_operator(b"=") or token.is_operator(b":=") for token in part)


def _ends_in_autocommit(token: Token) -> bool:
    return token.name.rstrip("`").lower().endswith("autocommit")  # in @@session.`autocommit`, too


def _comma_separated(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.is_operator(b"(") - token.is_operator(b")")
        if depth == 0 and token.is_operator(b","):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class _Assignment(NamedTuple):
    settings: tuple[tuple[str, str | Computed], ...] = ()
    opaque: bool = False
    untold: str = ""
    is_global: bool = False
    global_name: str = ""


_OPAQUE = _Assignment(opaque=True)
_NO_VARIABLES = word_set("NAMES CHARACTER CHARSET ROLE")
"""What a part of a SET may begin with that is of the session, whatever the scope before it."""


def _assignments(listed: Sequence[Sequence[Token]], options: Options) -> list[_Assignment]:
    """SET's parts: the word GLOBAL also holds for later parts that name no scope."""
    parts: list[_Assignment] = []
    global_scope = False
    for tokens in listed:
        part = Cursor(tokens, options)
        scope = part.word if len(tokens) > 2 else ""
        if scope in GLOBAL_SCOPES or scope in _SESSION_SCOPES:
            global_scope = scope in GLOBAL_SCOPES
            part.at += 1
        named = tokens[:1] and tokens[0].kind in NAMES and tokens[0].word not in _NO_VARIABLES
        bare = named and scope not in _SESSION_SCOPES
        if scope in GLOBAL_SCOPES or (global_scope and bare):
            name, _ = _variable_name(part)
            assigned = part.take_operator(b"=", b":=")  # SET GLOBAL TRANSACTION names none
            parts.append(_Assignment(is_global=True, global_name=name if assigned else ""))
        else:
            parts.append(_assignment(part))
    return parts


def _assignment(cursor: Cursor) -> _Assignment:
    if cursor.take("NAMES"):
        return _names_settings(cursor)
    if cursor.take("CHARACTER", "SET") or cursor.take("CHARSET"):
        return _charset_settings(cursor)
    if cursor.rest and cursor.rest[0].kind is TokenKind.USER_VARIABLE:
        return _user_variable(cursor)
    name, is_global = _variable_name(cursor)
    if is_global:
        return _Assignment(is_global=True, global_name=name)
    if not name or not cursor.take_operator(b"=", b":="):
        return _OPAQUE
    computed = _computed(_selected(cursor.rest), name, cursor.options.dialect)
    if name == "sql_mode" and computed is not None:
        return _Assignment(((name, computed),))
    if name == _RESULTS and [token.word for token in cursor.rest] == ["NULL"]:
        return _Assignment(((name, ""),))
    value = _value(cursor)
    if value is None and name.startswith("next_"):  # not a thing the server could be asked for
        return _Assignment(((name, "an expression"),))
    if value is None:
        return _Assignment(opaque=True, untold=name)
    return _Assignment(((name, value),))


def _user_variable(cursor: Cursor) -> _Assignment:
    """A user variable changes no answer, but one of them speaks to sqlcache. What it says by an
    expression only the server knows: the text of that is nothing that is understood."""
    name = cursor.rest[0].text[1:].strip(b"`'\"").lower()
    cursor.at += 1
    if b"@" + name != WORDS.encode() or not cursor.take_operator(b"=", b":="):
        return _Assignment()
    if [token.word for token in cursor.rest] == ["NULL"]:
        return _Assignment(((WORDS, ""),))
    value = _value(cursor)
    return _Assignment(((WORDS, "an expression" if value is None else value),))


def _variable_name(cursor: Cursor) -> tuple[str, bool]:
    """Steps over a variable's name: it in lower case, and whether it is the global one."""
    if cursor.at >= len(cursor.tokens):
        return "", False
    token = cursor.tokens[cursor.at]
    if token.kind is TokenKind.SYSTEM_VARIABLE:
        cursor.at += 1
        scope, _, name = token.text[2:].replace(b"`", b"").decode().rpartition(".")
        if scope.upper() in GLOBAL_SCOPES:
            return name.lower(), True
        if not scope and name.upper() in GLOBAL_SCOPES:  # a gap, and the name behind that
            return "", True
        if not name.isidentifier() or scope.upper() not in ("", *_SESSION_SCOPES):
            return "", False
        once = not scope and name.lower() in _OF_A_TRANSACTION
        return ("next_" if once else "") + name.lower(), False
    path = path_at(cursor.tokens, cursor.at)
    cursor.at = path.end if path else cursor.at
    return (path.parts[0].lower() if path and len(path.parts) == 1 else ""), False


def _value(cursor: Cursor) -> str | None:
    """Steps over a literal that ends the assignment: its normal form, or None; so where that is too
    long to be followed."""
    sign = "-" if cursor.take_operator(b"-") else ""
    if cursor.at != len(cursor.tokens) - 1:
        return None
    token = cursor.tokens[cursor.at]
    if len(token.text) > LONGEST_VALUE:
        return None
    if token.kind is TokenKind.NUMBER:
        return sign + token.text.decode()
    if sign:
        return None
    if token.kind is TokenKind.STRING and token.text[:1] in (b"'", b'"'):
        return string_value(token, cursor.options.dialect)
    if token.kind is TokenKind.WORD and token.word not in ("DEFAULT", "NULL", *functions.BARE):
        return _AS_NUMBER.get(token.word, token.name.lower())
    return None


_RESULTS = "character_set_results"


def _computed(tokens: Sequence[Token], name: str, dialect: Dialect) -> Computed | None:
    """CONCAT(@@name, '...') and REPLACE(@@name, '...', '...'), within one another, too, if these
    are not too many to be followed."""
    steps: list[tuple[str, str]] = []
    start, end = 0, len(tokens)
    while end - start != 1 or not _is_own(tokens[start], name):
        literals_in = _LITERALS_IN.get(tokens[start].word, 0) if start < end else 0
        closes = end - 1
        end = closes - 2 * literals_in
        if not literals_in or end < start + 2 or len(steps) == _MOST_STEPS:
            return None
        literals = _literals_after_commas(tokens[end:closes], dialect)
        in_parentheses = tokens[start + 1].is_operator(b"(") and tokens[closes].is_operator(b")")
        if literals is None or not in_parentheses:
            return None
        *replaced, new = literals
        if replaced == [""]:
            return None
        steps.append((replaced[0] if replaced else "", new))
        start += 2
    return Computed(tuple(reversed(steps)))


_LITERALS_IN = {"CONCAT": 1, "REPLACE": 2}
_MOST_STEPS = 64


def _literals_after_commas(tokens: Sequence[Token], dialect: Dialect) -> list[str] | None:
    """The plain strings in `, 'a', 'b'`."""
    literals = []
    for comma, token in zip(tokens[::2], tokens[1::2], strict=True):
        plain = token.kind is TokenKind.STRING and token.text[:1] in (b"'", b'"')
        if not comma.is_operator(b",") or not plain:
            return None
        literals.append(string_value(token, dialect))
    return literals


def _selected(tokens: Sequence[Token]) -> Sequence[Token]:
    """What stands in `(SELECT ...)`; else what stands there."""
    query = len(tokens) > 2 and tokens[0].is_operator(b"(") and tokens[1].word == "SELECT"
    return tokens[2:-1] if query and tokens[-1].is_operator(b")") else tokens


def _is_own(token: Token, name: str) -> bool:
    """Whether it is a session variable's name."""
    if token.kind is not TokenKind.SYSTEM_VARIABLE:
        return False
    scope, _, named = token.text[2:].replace(b"`", b"").decode().lower().rpartition(".")
    return named == name and scope in ("", "session", "local")


def _charset_name(cursor: Cursor) -> str | None:
    if cursor.at >= len(cursor.tokens):
        return None
    token = cursor.tokens[cursor.at]
    cursor.at += 1
    if token.kind is TokenKind.STRING and token.text[:1] in (b"'", b'"'):
        return string_value(token, cursor.options.dialect).lower()
    if token.kind is TokenKind.WORD and token.word != "DEFAULT":
        return token.name.lower()
    return None


def _names_settings(cursor: Cursor) -> _Assignment:
    charset = _charset_name(cursor)
    collation = f"default of {charset}"
    if cursor.take("COLLATE"):
        collation = _charset_name(cursor) or ""
    if charset is None or not collation or cursor.rest:
        return _OPAQUE
    return _Assignment(
        (
            ("character_set_client", charset),
            ("character_set_results", charset),
            ("character_set_connection", charset),
            ("collation_connection", collation),
        )
    )


def _charset_settings(cursor: Cursor) -> _Assignment:
    """SET CHARACTER SET: the connection's own set becomes the default schema's, not in the text."""
    charset = _charset_name(cursor)
    if charset is None or cursor.rest:
        return _OPAQUE
    known = (("character_set_client", charset), ("character_set_results", charset))
    return _Assignment(known, opaque=True)


_ISOLATION_LEVELS = {
    ("READ", "UNCOMMITTED"): "read-uncommitted",
    ("READ", "COMMITTED"): "read-committed",
    ("REPEATABLE", "READ"): "repeatable-read",
    ("SERIALIZABLE",): "serializable",
}


def _set_transaction(cursor: Cursor, prefix: str) -> Statement:
    """SET [SESSION] TRANSACTION: an isolation level, an access mode, or both."""
    cursor.at += 1
    settings: list[tuple[str, str]] = []
    for tokens in _comma_separated(cursor.rest):
        words = tuple(token.word for token in tokens)
        if words[:2] == ("ISOLATION", "LEVEL") and words[2:] in _ISOLATION_LEVELS:
            settings.append((prefix + "transaction_isolation", _ISOLATION_LEVELS[words[2:]]))
        elif words in (("READ", "ONLY"), ("READ", "WRITE")):
            settings.append((prefix + "transaction_read_only", str(int(words[1] == "ONLY"))))
        else:
            return Statement("SET", Kind.SESSION, opaque_session=True)
    return Statement("SET", Kind.SESSION, settings=tuple(settings))
