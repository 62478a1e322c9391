"""Which sessions a command may have ended."""

from collections.abc import Collection
from typing import Any

import pytest

from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import packet
from sqlcache.plan.commands import UNKNOWN, ClientCommand, Meaning
from sqlcache.proxy.kills import Kills, ended_by
from sqlcache.sql.analysis import analyse
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import ANY_CONNECTION, Kind

ANY = {ANY_CONNECTION}


def ends(code: int, payload: bytes, meaning: Meaning) -> set[int]:
    whole = packet(0, bytes((code,)) + payload)
    return set(ended_by(ClientCommand(code, whole, whole=True), meaning))


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("KILL 7", {7}),
        ("kill hard connection 7;", {7}),
        ("KILL 7; SELECT 1; KILL 8", {7, 8}),
        ("SET STATEMENT max_statement_time = 1 FOR KILL 7", {7}),
        ("KILL 0x7", ANY),
        ("KILL @n", ANY),
        ("KILL (SELECT 7)", ANY),
        ("KILL USER ann", ANY),
        ("KILL SOFT USER 'ann'@'%'", ANY),
        ("EXECUTE k", ANY),
        ("EXECUTE IMMEDIATE 'KILL 7'", ANY),
        ("BEGIN NOT ATOMIC KILL 7; END", ANY),
        ("BEGIN NOT ATOMIC SELECT 7; END", set()),
        ("KILL QUERY 7", set()),
        ("KILL HARD QUERY ID 7", set()),
        ("SELECT 'KILL 7'", set()),
    ],
)
def test_a_kill_names_the_connection_that_it_ends_or_may_end_any(
    text: str, ended: set[int]
) -> None:
    meaning = Meaning(analyse(text.encode(), Dialect()))
    odd = any(each.kind is Kind.UNKNOWN for each in meaning.statements)
    assert odd is text.startswith("BEGIN")
    assert ends(Command.QUERY, text.encode(), meaning) == ended


def test_so_do_commands_of_the_protocol() -> None:
    assert ends(Command.PROCESS_KILL, b"\7\1\0\0", Meaning()) == {263}
    assert ends(Command.STMT_EXECUTE, b"\1\0\0\0\0\1\0\0\0", UNKNOWN) == ANY
    assert ends(Command.PING, b"", Meaning()) == set()


@pytest.mark.parametrize(
    ("ended", "doubted"),
    [({7}, "a"), ({8, 9}, "b"), ({7 + (1 << 32)}, "a"), (ANY, "ab"), ({9}, "")],
)
def test_those_are_in_doubt_whose_connections_these_are(
    ended: Collection[int], doubted: str
) -> None:
    class Login:
        def __init__(self, connection: int) -> None:
            self.connection = connection

    kills, told = Kills(), list[str]()
    sessions: list[tuple[Any, int]] = [
        (lambda: told.append("a"), 7),
        (lambda: told.append("b"), 8),
        (lambda: told.append("c"), 7),
    ]
    for doubts, number in sessions:
        kills.begin(doubts, Login(number))
    kills.end(sessions[2][0])
    kills.ran(ended)
    assert "".join(told) == doubted
