"""The table of built-in functions."""

import pytest

from sqlcache.sql import functions
from sqlcache.sql.lexer import word_set


def test_no_function_is_both_cacheable_and_not() -> None:
    tables = [
        functions.DETERMINISTIC,
        functions.NOT_CACHEABLE,
        functions.SEQUENCE,
        functions.CLOCK_WITHOUT_ARGUMENTS,
    ]
    assert sum(map(len, tables)) == len(functions.KNOWN)


def test_names_are_upper_case() -> None:
    assert all(name == name.upper() for name in functions.KNOWN | functions.ADJACENT_ONLY)


@pytest.mark.parametrize(
    "name",
    sorted(
        word_set(
            "RAND UUID NOW SYSDATE CURDATE SLEEP GET_LOCK LAST_INSERT_ID FOUND_ROWS ROW_COUNT USER",
            "VERSION BENCHMARK LOAD_FILE NEXTVAL SETVAL CURRENT_USER UTC_DATE",
            "MASTER_POS_WAIT CONNECTION_ID RANDOM_BYTES UUID_SHORT CURRENT_ROLE UNIX_TIMESTAMP",
            "DEFAULT PASSWORD",
        )
    ),
)
def test_what_reads_the_clock_session_or_server_is_not_deterministic(name: str) -> None:
    assert name in functions.KNOWN
    assert name not in functions.DETERMINISTIC


def test_every_bare_and_diagnostic_function_is_refused() -> None:
    assert functions.BARE <= functions.NOT_CACHEABLE
    assert functions.DIAGNOSTIC <= functions.NOT_CACHEABLE
    assert functions.ADJACENT_ONLY <= functions.KNOWN
