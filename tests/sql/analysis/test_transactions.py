"""Transactions, locks and FLUSH."""

import pytest

from sqlcache.sql.statement import Locks, Transaction
from tests.sql.analysis.reading import one, written


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("XA START 'x'", ""),
        ("XA PREPARE 'x'", ""),
        ("LOCK TABLES t WRITE", ""),
        ("FLUSH LOGS", ""),
        ("FLUSH LOCAL STATUS, RELAY LOGS FOR CHANNEL 'c', HOSTS", ""),
        ("FLUSH TABLES t, u WITH READ LOCK", "t u"),
    ],
)
def test_locks_and_open_branches_write_nothing_but_what_they_flush(text: str, tables: str) -> None:
    assert written(text) == set(tables.split())


@pytest.mark.parametrize(
    "text",
    [
        "XA COMMIT 'x'",
        "XA ROLLBACK 'x'",
        "BEGIN NOT ATOMIC DELETE FROM t; END",
        "FLUSH PRIVILEGES",
        "FLUSH STATUS, PRIVILEGES",
        "FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS, HOSTS, PRIVILEGES",
        "FLUSH TABLES",
    ],
)
def test_what_ends_an_unknown_transaction_writes_everything(text: str) -> None:
    assert one(text).writes_everything


@pytest.mark.parametrize(
    ("text", "transaction", "may_commit"),
    [
        ("BEGIN", Transaction.START, True),
        ("START TRANSACTION READ ONLY", Transaction.START, True),
        ("COMMIT AND CHAIN", Transaction.COMMIT, True),
        ("ROLLBACK", Transaction.ROLLBACK, False),
        ("ROLLBACK WORK TO SAVEPOINT s", Transaction.ROLLBACK_TO_SAVEPOINT, False),
        ("SAVEPOINT s", Transaction.SAVEPOINT, False),
        ("RELEASE SAVEPOINT s", Transaction.RELEASE_SAVEPOINT, False),
        ("XA START 'x'", Transaction.XA, False),
        ("SET autocommit = 1", None, True),
        ("SET @@session.autocommit = 1", None, True),
        ("SET @@session.`autocommit` = 1", None, True),
        ("SET @@`autocommit` = 1", None, True),
        ("TRUNCATE t", None, True),
        ("LOCK TABLES t READ", None, True),
        ("CALL p()", None, True),
        ("INSERT INTO t VALUES (1)", None, False),
        ("SELECT * FROM t", None, False),
    ],
)
def test_transactions_and_what_may_commit_one(
    text: str, transaction: Transaction | None, may_commit: bool
) -> None:
    statement = one(text)
    assert (statement.transaction, statement.may_commit) == (transaction, may_commit)


@pytest.mark.parametrize(
    ("text", "locks"),
    [
        ("LOCK TABLES t READ, u WRITE", Locks.LOCK),
        ("LOCK TABLES t READ, u WRITE CONCURRENT", Locks.CONCURRENT),
        ("UNLOCK TABLES", Locks.UNLOCK),
        ("FLUSH TABLES WITH READ LOCK", Locks.LOCK),
        ("FLUSH TABLES t FOR EXPORT", Locks.LOCK),
        ("FLUSH TABLES t", None),
        ("BACKUP STAGE START", Locks.BACKUP),
        ("LOCK INSTANCE FOR BACKUP", Locks.BACKUP),
    ],
)
def test_locks_on_tables_are_told(text: str, locks: Locks | None) -> None:
    assert one(text).locks is locks
