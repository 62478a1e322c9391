"""Whether code that is stored in the server may change more than rows.

A routine or a trigger may set variables of the session that runs it, create temporary tables in
it, or change definitions, and no statement of the client says so. What is not understood may.
"""

from collections.abc import Set

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.lexer import Dialect, tokenize, word_set
from sqlcache.sql.lexer import Kind as TokenKind

_TELLING = word_set(
    "PREPARE EXECUTE NAMES CHARSET ROLE TRANSACTION GLOBAL PERSIST CREATE ALTER DROP RENAME",
    "GRANT REVOKE FLUSH INSTALL UNINSTALL",
)
_TELLING_KINDS = frozenset((TokenKind.SYSTEM_VARIABLE, TokenKind.VERSIONED, TokenKind.OTHER))


def is_unruly(body: bytes | None, sql_mode: str, variables: Set[str]) -> bool:
    """Whether a body, read under `sql_mode`, may; `variables` are those that matter, lower case.

    A column or a local variable of such a name counts too. None is a body that may not be seen.
    """
    modes = sql_mode.upper().split(",")
    if body is None or "ORACLE" in modes:
        return True
    dialect = Dialect(
        ansi_quotes="ANSI_QUOTES" in modes, no_backslash_escapes="NO_BACKSLASH_ESCAPES" in modes
    )
    try:
        tokens = tokenize(body, dialect)
    except SqlSyntaxError:
        return True
    names = {t.name.lower() for t in tokens if t.kind in (TokenKind.WORD, TokenKind.NAME)}
    return (
        not names.isdisjoint(variables)
        or "sys" in names
        or any(token.word in _TELLING for token in tokens)
        or any(token.kind in _TELLING_KINDS for token in tokens)
    )
