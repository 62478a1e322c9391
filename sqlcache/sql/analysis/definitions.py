"""Definitions, privileges and the upkeep of tables.

A definition that concerns a table counts as a write to it, and changes its schema's tag as well.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlcache.sql.analysis.calls import function_use, with_functions
from sqlcache.sql.analysis.cursor import Cursor
from sqlcache.sql.facts import WITH_ROWS_OF_THEIR_OWN
from sqlcache.sql.lexer import Token, after_definer, word_set
from sqlcache.sql.names import TableRef
from sqlcache.sql.statement import Kind, Statement, changed, everything, unknown
from sqlcache.sql.tables import path_at, ref_of, scan_tables

_IN_SCHEMA = frozenset(("VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "SEQUENCE", "PACKAGE"))
_OBJECTS = _IN_SCHEMA | frozenset(("TABLE", "TABLES", "INDEX", "DATABASE", "SCHEMA"))
_BEFORE_OBJECT = word_set(
    "OR REPLACE TEMPORARY ONLINE OFFLINE IGNORE UNIQUE FULLTEXT SPATIAL VECTOR AGGREGATE"
    " UNDEFINED MERGE TEMPTABLE SQL SECURITY INVOKER"
)


def privileges(cursor: Cursor) -> Statement:
    """GRANT and REVOKE: a new session may have other roles afterwards."""
    return replace(everything(cursor.word), reason="it changes privileges")


def _object(cursor: Cursor) -> tuple[frozenset[str], str]:
    """Steps over CREATE's, ALTER's or DROP's options and the word for what it concerns."""
    cursor.at += 1
    options: set[str] = set()
    while True:
        if cursor.word == "DEFINER":
            cursor.at = after_definer(cursor.tokens, cursor.at)
        elif cursor.take("ALGORITHM"):
            cursor.take_operator(b"=")
        elif cursor.word in _BEFORE_OBJECT:
            options.add(cursor.word)
            cursor.at += 1
        elif cursor.take("SQL", "SECURITY", "DEFINER"):
            continue
        else:
            break
        if cursor.take("SECURITY"):
            cursor.at += 1
    word = cursor.word
    cursor.at += 1
    return frozenset(options), word


def _ddl(
    verb: str,
    refs: frozenset[TableRef],
    *,
    schemas: frozenset[str | None] | None = None,
    reads: frozenset[TableRef] = frozenset(),
    leads: bool = False,
) -> Statement:
    if schemas is None:
        schemas = frozenset(ref.schema for ref in refs)
    return Statement(
        verb,
        Kind.DDL,
        reads=reads,
        writes=refs,
        schemas=schemas,
        may_commit=True,
        leads=leads or not refs,
    )


def create(cursor: Cursor) -> Statement:
    """CREATE of anything; what is no table, view or routine counts as a change of everything."""
    options, word = _object(cursor)
    replaces = "REPLACE" in options and word in _OBJECTS - {"VIEW"}
    return changed(_create(cursor, options, word), replaces=replaces)


def _create(cursor: Cursor, options: frozenset[str], word: str) -> Statement:
    if word in ("DATABASE", "SCHEMA"):
        return _schema_ddl(cursor, "CREATE")
    if word == "INDEX":
        return _index_ddl(cursor, "CREATE")
    if word not in _OBJECTS:
        return everything("CREATE")
    if word == "PACKAGE":
        cursor.take("BODY")
    keeps = cursor.word == "IF"
    cursor.skip_exists()
    ref = cursor.table()
    if ref is None:
        return unknown("CREATE", "its name cannot be read")
    if _may_be_loadable(cursor, word, ref):
        return everything("CREATE")
    if word in ("TABLE", "SEQUENCE"):
        return changed(_create_table(cursor, ref, "TEMPORARY" in options), keeps=keeps)
    refs = frozenset((ref,))
    if word == "TRIGGER":
        on = cursor.find("ON")
        cursor.at = on + 1 if on is not None else len(cursor.tokens)
        table = cursor.table()
        return _ddl("CREATE", refs | ({table} if table else set()), leads=True)
    if word == "VIEW":
        return _view("CREATE", ref, cursor)
    return _ddl("CREATE", frozenset(), schemas=frozenset((ref.schema,)), leads=True)


def _view(verb: str, ref: TableRef, cursor: Cursor) -> Statement:
    """CREATE and ALTER of a view: MariaDB may call functions in it to know its columns."""
    begins = cursor.find("AS")
    query = cursor.tokens[begins:] if begins is not None else ()
    tables = scan_tables(query)
    statement = _ddl(verb, frozenset((ref,)), reads=tables.refs, leads=True)
    statement = replace(statement, defines_view=True)
    return with_functions(statement, function_use(cursor, query, tables.column_lists))


def _may_be_loadable(cursor: Cursor, word: str, ref: TableRef) -> bool:
    """Whether it is about a declared function that belongs to no schema."""
    routine = cursor.options.declared.find((ref.name,))
    return word == "FUNCTION" and routine is not None and routine.schema is None


def _create_table(cursor: Cursor, ref: TableRef, temporary: bool) -> Statement:
    query = _query_in(cursor.rest)
    after = cursor.rest[query:] if query is not None else []
    parts = cursor.rest if query is not None else []
    tables = scan_tables(parts)
    refs = frozenset((ref,))
    elsewhere = _is_elsewhere(cursor.rest[:query])
    if temporary:
        merges = any(token.word == "UNION" for token in cursor.rest[:query]) or elsewhere
        reads = tables.refs | _tables_after(cursor, ("LIKE",))
        statement = Statement(
            "CREATE", Kind.DDL, reads=reads, temporary_created=refs, merges=merges
        )
    else:
        merged = _tables_after(cursor, ("UNION",)) if cursor.find("UNION") else frozenset()
        # A table that is referred to is led by that to the new one.
        referred = _referred(cursor, ref)
        like = "LIKE" in cursor.words  # MariaDB takes it in parentheses, too
        leads = bool(merged) or like or elsewhere  # as a MERGE table does
        statement = _ddl("CREATE", refs | referred, reads=tables.refs | merged, leads=leads)
    return with_functions(statement, function_use(cursor, after))


def _is_elsewhere(tokens: Sequence[Token], *, options: bool = True) -> bool:
    """Whether a table may have its rows in others, by an option among these tokens. Without
    `options` there may be names of columns, too, where none are in parentheses."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += token.is_operator(b"(") - token.is_operator(b")")
        if depth or token.word not in ("ENGINE", "CONNECTION"):
            continue
        value = [each for each in tokens[at + 1 : at + 3] if not each.is_operator(b"=")]
        begins = not at or tokens[at - 1].is_operator(b",")
        if not (options or begins or tokens[at + 1 : at + 2] != value[:1]):
            continue
        if token.word == "CONNECTION" or (value and not _keeps_its_rows(value[0])):
            return True
    return False


def _keeps_its_rows(engine: Token) -> bool:
    return engine.name.strip("'\"").lower() in WITH_ROWS_OF_THEIR_OWN | _OTHER_NAMES


_OTHER_NAMES = frozenset(("heap", "innobase", "maria"))
"""Of engines, as servers know them as well."""


def _query_in(tokens: Sequence[Token]) -> int | None:
    """Where the query begins whose rows a new table gets."""
    for at, token in enumerate(tokens):
        if token.word in ("SELECT", "WITH", "TABLE"):
            return at
        after = tokens[at + 1] if at + 1 < len(tokens) else token
        if token.word == "VALUES" and (after.word == "ROW" or after.is_operator(b"(")):
            return at  # and no partition's VALUES LESS THAN or VALUES IN
    return None


def _tables_after(cursor: Cursor, words: tuple[str, ...]) -> frozenset[TableRef]:
    """The tables named after any place where these words follow each other."""
    if not cursor.words.issuperset(words):
        return frozenset()
    refs: set[TableRef] = set()
    ahead = [token.word for token in cursor.tokens]
    for at in range(len(ahead) - len(words)):
        if tuple(ahead[at : at + len(words)]) == words:
            path = path_at(cursor.tokens, at + len(words))
            ref = ref_of(path.parts) if path else None
            refs |= {ref} if ref else set()
    return frozenset(refs)


def _referred(cursor: Cursor, child: TableRef) -> frozenset[TableRef]:
    """The tables to which foreign keys of a table refer: in its own schema if no other is named."""
    found = _tables_after(cursor, ("REFERENCES",))
    return frozenset(ref._replace(schema=ref.schema or child.schema) for ref in found)


def _schema_ddl(cursor: Cursor, verb: str) -> Statement:
    cursor.skip_exists()
    path = path_at(cursor.tokens, cursor.at)
    schemas: frozenset[str | None] = frozenset(path.parts if path else ())
    if verb == "ALTER":  # the name may be left out
        schemas |= {None}
    return _ddl(verb, frozenset(), schemas=schemas)


def _index_ddl(cursor: Cursor, verb: str) -> Statement:
    on = cursor.find("ON")
    cursor.at = on + 1 if on is not None else len(cursor.tokens)
    ref = cursor.table()
    return _ddl(verb, frozenset((ref,))) if ref else unknown(verb, "its table cannot be read")


def alter(cursor: Cursor) -> Statement:
    """ALTER, with every table that gets another name or other rows by it."""
    _, word = _object(cursor)
    if word in ("DATABASE", "SCHEMA"):
        return _schema_ddl(cursor, "ALTER")
    if word not in _OBJECTS:
        return everything("ALTER")
    cursor.skip_exists()
    ref = cursor.table()
    if ref is None:
        return unknown("ALTER", "its name cannot be read")
    if word == "EVENT":
        moved = _tables_after(cursor, ("RENAME", "TO"))
        return _ddl("ALTER", frozenset(), schemas=frozenset(r.schema for r in moved | {ref}))
    if word in ("PROCEDURE", "FUNCTION", "PACKAGE"):
        return _ddl("ALTER", frozenset(), schemas=frozenset((ref.schema,)))
    if word == "VIEW":
        return _view("ALTER", ref, cursor)
    if word != "TABLE":
        return _ddl("ALTER", frozenset((ref,)), leads=True)
    merges = "UNION" in cursor.words or _is_elsewhere(cursor.rest, options=False)
    renames = not cursor.words.isdisjoint(("RENAME", "EXCHANGE"))
    refs = frozenset((ref,)) | _other_tables_of_alter(cursor) | _referred(cursor, ref)
    return changed(_ddl("ALTER", refs, leads=renames or merges), merges=merges)


_RENAMED_PARTS = frozenset(("COLUMN", "INDEX", "KEY", "CONSTRAINT"))


def _other_tables_of_alter(cursor: Cursor) -> frozenset[TableRef]:
    """New names, tables swapped with partitions, tables of a MERGE."""
    refs = set(_tables_after(cursor, ("WITH", "TABLE")) | _tables_after(cursor, ("TO", "TABLE")))
    refs |= _tables_after(cursor, ("CONVERT", "TABLE"))
    for at, token in enumerate(cursor.tokens):
        if token.word == "RENAME":
            follower = cursor.fork(at + 1)
            if follower.word in _RENAMED_PARTS:
                continue
            _ = follower.take("TO") or follower.take("AS") or follower.take_operator(b"=")
            ref = follower.table()
            refs |= {ref} if ref else set()
        if token.word == "UNION":
            follower = cursor.fork(at + 1)
            follower.take_operator(b"=")
            if follower.take_operator(b"("):
                refs |= follower.tables() or frozenset()
    return frozenset(refs)


def drop(cursor: Cursor) -> Statement:
    """DROP, of temporary tables too, which other sessions do not see."""
    options, word = _object(cursor)
    if word == "PREPARE":
        return Statement("DROP", Kind.SESSION)
    if word in ("DATABASE", "SCHEMA"):
        return _schema_ddl(cursor, "DROP")
    if word == "INDEX":
        return _index_ddl(cursor, "DROP")
    if word not in _OBJECTS:
        return everything("DROP")
    if word == "PACKAGE":
        cursor.take("BODY")
    cursor.skip_exists()
    refs = cursor.tables()
    if refs is None:
        return unknown("DROP", "its names cannot be read")
    if any(_may_be_loadable(cursor, word, ref) for ref in refs):
        return everything("DROP")
    # A sequence of that name there may be none, and a temporary table stay.
    temporary = refs if word in ("TABLE", "TABLES") else frozenset()
    if "TEMPORARY" in options:
        return Statement("DROP", Kind.DDL, temporary_dropped=temporary)
    if word in ("TABLE", "TABLES", "SEQUENCE"):
        return replace(_ddl("DROP", refs), temporary_dropped=temporary)
    schemas: frozenset[str | None] = frozenset(ref.schema for ref in refs)
    dropped = _ddl("DROP", refs if word == "VIEW" else frozenset(), schemas=schemas)
    return replace(dropped, trigger=next(iter(refs))) if word == "TRIGGER" else dropped


def rename(cursor: Cursor) -> Statement:
    """RENAME TABLE, both names of each, and RENAME USER."""
    cursor.at += 1
    if not cursor.take("TABLE") and not cursor.take("TABLES"):
        return everything("RENAME")
    cursor.skip_exists()
    refs: set[TableRef] = set()
    while True:
        old = cursor.table()
        while cursor.word in ("WAIT", "NOWAIT"):
            cursor.at += 1 + (cursor.word == "WAIT")
        new = cursor.table() if cursor.take("TO") else None
        if old is None or new is None:
            return unknown("RENAME", "its names cannot be read")
        refs |= {old, new}
        if not cursor.take_operator(b","):
            return _ddl("RENAME", frozenset(refs), leads=True)


def truncate(cursor: Cursor) -> Statement:
    """TRUNCATE: it commits, and the definition stays."""
    cursor.at += 1
    cursor.take("TABLE")
    ref = cursor.table()
    if ref is None:
        return unknown("TRUNCATE", "its table cannot be read")
    return _ddl("TRUNCATE", frozenset((ref,)), schemas=frozenset())


MAINTENANCE_WORDS = frozenset(("NO_WRITE_TO_BINLOG", "LOCAL"))
MAINTAINED = ("TABLE", "TABLES", "VIEW")
_LOOKED_AT = frozenset(("ALL", "COLUMNS", "INDEXES"))


def maintain(cursor: Cursor) -> Statement:
    """OPTIMIZE, REPAIR, ANALYZE, CHECK and CHECKSUM TABLE: the first two may change rows, and by
    ANALYZE the server may choose another plan, so another order, or other rows up to a LIMIT."""
    verb = cursor.word
    cursor.at += 1
    cursor.take_any(MAINTENANCE_WORDS)
    refs = _maintained(cursor) if any(cursor.take(word) for word in MAINTAINED) else None
    if refs is None:
        return unknown(verb, "its tables cannot be read")
    if verb in ("OPTIMIZE", "REPAIR", "ANALYZE"):
        return _ddl(verb, refs, schemas=frozenset())
    return Statement(verb, Kind.OTHER, reads=refs, may_commit=verb != "CHECKSUM")


def _maintained(cursor: Cursor) -> frozenset[TableRef] | None:
    """Steps over the names of tables; MariaDB's ANALYZE may say behind each what to look at."""
    refs = cursor.tables()
    while refs is not None and cursor.take("PERSISTENT", "FOR"):
        while cursor.take_any(_LOOKED_AT):
            cursor.skip_group()
        more = cursor.tables() if cursor.take_operator(b",") else frozenset[TableRef]()
        refs = None if more is None else refs | more
    return refs


def server_change(cursor: Cursor) -> Statement:
    """INSTALL, UNINSTALL, CLONE, IMPORT: what the server can do, or holds, is another."""
    if cursor.find("SET") is not None:
        return unknown(cursor.word, "it sets variables")
    return everything(cursor.word, Kind.OTHER)
