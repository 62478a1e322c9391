"""A whole text: its statements one by one, versioned comments, heads and large INSERTs."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from sqlcache.errors import SqlSyntaxError
from sqlcache.sql.analysis.changes import insert, insert_target, load
from sqlcache.sql.analysis.cursor import CODE_KINDS, Cursor, Options
from sqlcache.sql.analysis.verbs import read_statement
from sqlcache.sql.lexer import Kind as TokenKind
from sqlcache.sql.lexer import Token, abridged, split_statements, tokenize, tokenize_head
from sqlcache.sql.pieces import AT_ONCE, Dialect
from sqlcache.sql.policy import LONGEST_WORDS
from sqlcache.sql.routines import NONE_DECLARED, Declared
from sqlcache.sql.statement import ANYTHING, Kind, Statement, changed, in_turn_once, unknown
from sqlcache.sql.versioned import Opens, inside

HEAD_BYTES = 8192  # how much is read of a text that goes on, or to find a large INSERT's table

MOST_NAMES = 1_000
"""Of tables, functions and settings in one text, counted anew in each statement unlike all before.
Each is resolved, fenced and remembered by itself, and all that while other clients wait: a text
that names more counts as writing everything."""

MOST_STATEMENTS = 1_000
"""In one text that is followed, likewise."""

_STATEMENT_NAMES = 3  # take as long as what each statement takes besides
_MOST_SETTINGS = 4_000  # that one text sets, the same ones again and again
_MOST_DIRECTIVES = 16


def analyse(
    text: bytes,
    dialect: Dialect,
    *,
    multi_statements: bool = True,
    parameters_allowed: bool = False,
    declared: Declared = NONE_DECLARED,
    opens: Opens | None = None,
    head: bool = False,
) -> tuple[Statement, ...]:
    """Tells what each statement of a text does; one that is empty gives none.

    `multi_statements` is whether the session may send several at once. `parameters_allowed` is
    for the text of COM_STMT_PREPARE, where `?` stands for a value. `declared` are the routines of
    which it is known what they do. `opens` tells which versioned comments the server runs. `head`
    is for a text that goes on: then only a SELECT, INSERT, REPLACE or LOAD can be known, as far as
    its head tells, which is less a function that is called further on.
    """
    options = Options(dialect, parameters_allowed, declared, opens)
    tokens: list[Token] = []
    try:
        if head:
            tokens += tokenize_head(text[:HEAD_BYTES], dialect)
            return (_if_few_names(_analyse_head(tokens, options)),)
        if len(text) > HEAD_BYTES and not multi_statements:
            known = _analyse_large_insert(text, options)
            if known is not None:
                return (known,)
        tokens += tokenize(text, dialect)
        if any(token.kind is TokenKind.VERSIONED for token in tokens):
            return _analyse_versioned(tokens, options, multi_statements=multi_statements)
        pieces = split_statements(tokens)
        if len(pieces) > 1 and not multi_statements:
            return (unknown("", "it holds several statements"),)
        if len(pieces) == 1:
            return (_analyse_piece(abridged(pieces[0]), options, alone=not multi_statements),)
        return _analyse_several(pieces, options)
    except SqlSyntaxError as error:
        return (unknown("", str(error)),)
    except RecursionError:  # EXPLAIN EXPLAIN ..., SET STATEMENT ... FOR SET STATEMENT ...
        return (unknown("", "it nests too deep"),)
    finally:
        while tokens:  # or no other thread would run until all are gone
            del tokens[-AT_ONCE:]


_BY_MODES = frozenset(b'\\"') | frozenset(range(128, 256))
"""Bytes that one sql_mode or character set reads otherwise than another."""
_SEVERAL = "it is one of several statements in one text"


def _analyse_versioned(
    tokens: Sequence[Token], options: Options, *, multi_statements: bool
) -> tuple[Statement, ...]:
    """Reads `/*!40101 SET ... */`, as dumps have it: what the server runs stands in its place."""
    opened = _opened(tokens, options)
    pieces = split_statements(opened) if opened is not None else ()
    if opened is None or (len(pieces) > 1 and not multi_statements):
        return (unknown("", "it holds a versioned comment"),)
    if len(pieces) == 1:
        return (_analyse_piece(abridged(pieces[0]), options, alone=not multi_statements),)
    return _analyse_several(pieces, options) or (Statement("", Kind.OTHER, reason="it is empty"),)


def _opened(tokens: Sequence[Token], options: Options) -> list[Token] | None:
    """The tokens with those among them that the server reads of versioned comments; None where that
    is not known."""
    opened: list[Token] = []
    for token in tokens:
        if token.kind is not TokenKind.VERSIONED:
            opened.append(token)
            continue
        read = inside(token.text, options.opens)
        if read is None:
            return None
        # Where it is in the text: the comment's marks keep tokens apart as blanks do.
        start = token.start + read.start
        opened += [t._replace(start=start + t.start) for t in tokenize(read.text, options.dialect)]
    return None if any(token.kind is TokenKind.VERSIONED for token in opened) else opened


def _analyse_several(pieces: Sequence[Sequence[Token]], options: Options) -> tuple[Statement, ...]:
    """The statements of one text, if they are not too many to be followed: those that are alike are
    one and the same object."""
    if len(pieces) > MOST_STATEMENTS:
        return (unknown("", "it holds too many statements"),)
    known: dict[Statement, Statement] = {}
    several = []
    for each in _analyse_in_turn(pieces, options):
        if each not in known:
            known[each] = replace(each, cacheable=False, reason=_SEVERAL)
        several.append(known[each])
    # A statement names something else in another default schema.
    names = sum(_STATEMENT_NAMES + _names([each]) for each, _ in in_turn_once(several, None))
    if names > MOST_NAMES or _sets_much(several):
        return (unknown("", "its statements name too much"),)
    return tuple(several)


def _analyse_in_turn(pieces: Sequence[Sequence[Token]], options: Options) -> Iterator[Statement]:
    """The statements of one text, each of which the server reads after it has run the last."""
    by_modes = _last(pieces, lambda token: not _BY_MODES.isdisjoint(token.text))
    beyond_ascii = _last(pieces, lambda token: not token.text.isascii())
    for at, piece in enumerate(pieces):
        statement = _analyse_piece(piece, options)
        yield statement
        if statement.use_schema is not None:
            declared = replace(options.declared, schema=statement.use_schema)
            options = options._replace(declared=declared)
        changed = {name for name, _ in statement.settings}
        modes = statement.opaque_session or "sql_mode" in changed
        # By the modes it is known where a literal ends, and what is a name.
        read_otherwise = by_modes if modes else beyond_ascii
        if at < read_otherwise and (modes or "character_set_client" in changed):
            yield unknown("", "a statement before it changes how it is read")
            return


def _last(pieces: Sequence[Sequence[Token]], holds: Callable[[Token], bool]) -> int:
    """The place of the last statement that has such a token; -1 if none has."""
    places = range(len(pieces) - 1, -1, -1)
    return next((at for at in places if any(map(holds, pieces[at]))), -1)


def _analyse_head(tokens: Sequence[Token], options: Options) -> Statement:
    cursor = Cursor(tokens, options)
    verb = cursor.word
    if verb == "SELECT" and not any(token.kind in CODE_KINDS for token in tokens):
        return Statement(  # which may ask, lock and call what stands further on
            verb,
            Kind.READ,
            reason="only its head is known",
            locking_read=True,
            diagnostic=True,
            found_rows=True,
        )
    read = {"INSERT": insert, "REPLACE": insert, "LOAD": load}.get(verb)
    if read is None or any(token.kind in CODE_KINDS for token in tokens):
        return unknown(verb, "only its head is known")
    statement = read(cursor)
    if not cursor.rest or cursor.rest[0].text == b".":  # the table's name may go on
        return unknown(verb, "only its head is known")
    return changed(statement, changes=ANYTHING, directives=_directives(tokens))


def _analyse_large_insert(text: bytes, options: Options) -> Statement | None:
    """An INSERT ... VALUES by its head and what follows its rows, if those are plain literals.

    Searches step over many rows at a time: megabytes of them cost milliseconds, not seconds.
    """
    if options.dialect.ansi_quotes:
        return None
    tokens = tokenize_head(text[:HEAD_BYTES], options.dialect)
    cursor = Cursor(tokens, options)
    if cursor.word not in ("INSERT", "REPLACE"):
        return None
    insert_target(cursor)
    cursor.skip_group()
    if not (cursor.take("VALUES") or cursor.take("VALUE")) or not cursor.rest:
        return None
    backslashes = not options.dialect.no_backslash_escapes
    rows = _ROWS_ESCAPED if backslashes else _ROWS_PLAIN
    start, end = -1, cursor.rest[0].start
    while end > start and (some := rows.match(text, end)) is not None:
        start, end = end, some.end()
    if end <= cursor.rest[0].start or _SPLITS_A_TOKEN.match(text, end - 1):
        return None
    before = [token for token in tokens if token.start < cursor.rest[0].start]
    after = tokenize(text[end:], options.dialect)
    pieces = split_statements((*before, *after))
    if len(pieces) != 1 or any(token.kind in CODE_KINDS for token in pieces[0]):
        return None
    if any(token.word in ("SELECT", "TABLE") for token in after):
        return None  # what it reads cannot be told with half its parentheses missing
    return _analyse_piece(pieces[0], options, alone=True)


_ROW_PART = (  # no comment's start, where quotes are none, and no end of a name such as 1TRUE
    rb"[ \t-\r.,()+]++|-(?!-[\x00-\x20\x7f])|0x[0-9A-Fa-f]++|[0-9]++(?:[eE][+-]?[0-9]++)?+"
    rb"|(?<=[ \t-\r,(])(?i:NULL|TRUE|FALSE|DEFAULT)(?=[ \t-\r,)])|(?:(?<=[ ,(])[NnXxBb])?"
)
_TURN = rb"{0,4096}+"  # parts at a time: one search lets no other thread run
_ROWS_ESCAPED = re.compile(
    rb"(?:" + _ROW_PART + rb"'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'"
    rb'|"[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+")' + _TURN,
    re.DOTALL,
)
_ROWS_PLAIN = re.compile(rb"(?:" + _ROW_PART + rb"'[^']*+'" + rb'|"[^"]*+")' + _TURN)
_SPLITS_A_TOKEN = re.compile(rb"[A-Za-z0-9_$.'\"\x80-\xff-][A-Za-z0-9_$'\"\x80-\xff-]")


def _directives(tokens: Sequence[Token]) -> tuple[str, ...]:
    """What is too long or too much to be understood is kept as such, and no longer than that."""
    said = [token.text for token in tokens if token.kind is TokenKind.DIRECTIVE]
    if len(said) > _MOST_DIRECTIVES:
        return ("too many words",)
    return tuple(text.decode("utf-8", "replace")[: LONGEST_WORDS + 1] for text in said)


def _analyse_piece(tokens: Sequence[Token], options: Options, *, alone: bool = False) -> Statement:
    """One statement. `alone`: the session cannot send several, so `;` only stands in a body."""
    cursor = Cursor(tokens, options)
    if any(token.kind is TokenKind.OTHER for token in cursor.tokens):
        return unknown(cursor.word, "it holds a byte the grammar has no use for")
    statement = read_statement(cursor)
    bodies = any(token.text == b";" for token in cursor.tokens[:-1])
    if bodies and not alone:  # the body may end before the text does
        statement = replace(
            statement,
            writes_everything=True,
            by_code=False,
            may_commit=True,
            opaque_session=True,
        )
    return _if_few_names(changed(statement, directives=_directives(tokens)))


def _if_few_names(statement: Statement) -> Statement:
    """The statement, if what it names is not too much to be followed."""
    few = _names([statement]) <= MOST_NAMES and not _sets_much([statement])
    return statement if few else unknown(statement.verb, "it names too much")


def _names(statements: Sequence[Statement]) -> int:
    """How much they name, what several name counted once."""
    return max(len(set(chain.from_iterable(map(of, statements)))) for of in _NAMED)


def _sets_much(statements: Sequence[Statement]) -> bool:
    return sum(len(each.settings) for each in statements) > _MOST_SETTINGS


_NAMED = [
    attrgetter(name)
    for name in (
        "reads",
        "writes",
        "schemas",
        "temporary_dropped",
        "functions",
        "code",
        "settings",
        "globals_set",
    )
]
