"""Transactions, locks on tables, and FLUSH."""

from dataclasses import replace
from itertools import pairwise

from sqlcache.sql.analysis.cursor import Cursor
from sqlcache.sql.analysis.definitions import MAINTENANCE_WORDS
from sqlcache.sql.lexer import word_set
from sqlcache.sql.statement import (
    Access,
    Kind,
    Locks,
    Statement,
    Transaction,
    everything,
    unknown,
)


def start(cursor: Cursor) -> Statement:
    """BEGIN, which may open an anonymous block too, and START, which may start other things."""
    verb = cursor.word
    cursor.at += 1
    if verb == "BEGIN":
        begins = not cursor.rest or cursor.take("WORK")
        if not begins:
            return unknown(verb, "what it runs is not in its text")
    elif not cursor.take("TRANSACTION"):
        return Statement(verb, Kind.OTHER, may_commit=True)  # REPLICA, GROUP_REPLICATION
    access = Access.READ_WRITE if cursor.find("WRITE") is not None else None
    return Statement(
        verb,
        Kind.TRANSACTION,
        may_commit=True,
        transaction=Transaction.START,
        access=Access.READ_ONLY if cursor.find("ONLY") is not None else access,
        opens_snapshot=cursor.find("SNAPSHOT") is not None,
    )


def commit(cursor: Cursor) -> Statement:
    """COMMIT."""
    return Statement("COMMIT", Kind.TRANSACTION, may_commit=True, transaction=Transaction.COMMIT)


def rollback(cursor: Cursor) -> Statement:
    """ROLLBACK, of all or to a savepoint."""
    cursor.at += 1
    cursor.take("WORK")
    partly = cursor.word == "TO"
    kind = Transaction.ROLLBACK_TO_SAVEPOINT if partly else Transaction.ROLLBACK
    return Statement("ROLLBACK", Kind.TRANSACTION, transaction=kind)


def savepoint(cursor: Cursor) -> Statement:
    """SAVEPOINT and RELEASE SAVEPOINT."""
    verb = cursor.word
    kind = Transaction.SAVEPOINT if verb == "SAVEPOINT" else Transaction.RELEASE_SAVEPOINT
    return Statement(verb, Kind.TRANSACTION, transaction=kind)


_XA_WITHOUT_WRITES = frozenset(("START", "BEGIN", "END", "PREPARE", "RECOVER"))


def xa(cursor: Cursor) -> Statement:
    """XA: another session may have begun the branch that ends, so what it wrote is unknown."""
    cursor.at += 1
    harmless = cursor.word in _XA_WITHOUT_WRITES
    return Statement(
        "XA",
        Kind.TRANSACTION,
        transaction=None if cursor.word == "RECOVER" else Transaction.XA,
        prepares_branch=cursor.word == "PREPARE",
        writes_everything=not harmless,
        may_commit=not harmless,
        reason="it is about an XA transaction",
    )


def lock(cursor: Cursor) -> Statement:
    """LOCK and UNLOCK, of tables or of the instance."""
    verb = cursor.word
    cursor.at += 1
    if cursor.word not in ("TABLE", "TABLES"):
        return Statement(verb, Kind.OTHER, locks=Locks.BACKUP, may_commit=True)
    concurrent = any(token.word == "CONCURRENT" for token in cursor.rest)
    locks = Locks.CONCURRENT if concurrent else Locks[verb]
    return Statement(verb, Kind.OTHER, locks=locks, may_commit=True)


def backup(cursor: Cursor) -> Statement:
    """MariaDB's BACKUP STAGE and BACKUP LOCK."""
    cursor.at += 1
    return Statement("BACKUP", Kind.OTHER, locks=Locks.BACKUP, may_commit=True)


_FLUSHED_WITHOUT_WRITES = word_set(
    "LOGS BINARY ENGINE ERROR GENERAL RELAY SLOW STATUS HOSTS USER_RESOURCES USER_STATISTICS"
    " CLIENT_STATISTICS INDEX_STATISTICS TABLE_STATISTICS QUERY OPTIMIZER_COSTS SSL"
)


def flush(cursor: Cursor) -> Statement:
    """FLUSH. Of TABLES it may be that their files were replaced, of PRIVILEGES the grants."""
    cursor.at += 1
    cursor.take_any(MAINTENANCE_WORDS)
    listed = [token.word for comma, token in pairwise(cursor.rest) if comma.is_operator(b",")]
    if _FLUSHED_WITHOUT_WRITES.issuperset((cursor.word, *listed)):
        return Statement("FLUSH", Kind.OTHER, may_commit=True)
    if not cursor.take("TABLE") and not cursor.take("TABLES"):
        return everything("FLUSH", Kind.OTHER)
    locks = Locks.LOCK if cursor.find("WITH", "FOR") is not None else None
    refs = None if cursor.word in ("WITH", "") else cursor.tables()
    if refs is None:
        return replace(everything("FLUSH", Kind.OTHER), locks=locks)
    return Statement("FLUSH", Kind.OTHER, writes=refs, locks=locks, may_commit=True)
