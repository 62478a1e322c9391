"""Which sessions a command may have ended."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import End, packet
from sqlcache.plan.commands import ClientCommand, Meaning
from sqlcache.proxy.kills import Kills, ended_by
from sqlcache.sql.analysis import analyse
from sqlcache.sql.pieces import Dialect
from sqlcache.sql.statement import ANY_CONNECTION

ANY = {ANY_CONNECTION}


DONE, FAILED = End(2, 0), End(None, 0)


def ended(
    code: int, payload: bytes, meaning: Meaning, ends: Sequence[End], before: int = 0
) -> set[int]:
    whole = packet(0, bytes((code,)) + payload)
    return set(ended_by(ClientCommand(code, whole, whole=True), meaning, before, ends))


def meaning_of(text: str) -> Meaning:
    return Meaning(analyse(text.encode(), Dialect()))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("KILL 7", {7}),
        ("kill hard connection 7;", {7}),
        ("KILL 7; SELECT 1; KILL 8", {7, 8}),
        ("SET STATEMENT max_statement_time = 1 FOR KILL 7", {7}),
        ("KILL 0x7", ANY),
        (f"KILL {'7' * 5_000}", ANY),
        ("KILL @n", ANY),
        ("KILL (SELECT 7)", ANY),
        ("KILL USER ann", ANY),
        ("KILL SOFT USER 'ann'@'%'", ANY),
        ("KILL QUERY 7", set()),
        ("KILL HARD QUERY ID 7", set()),
        ("SELECT 'KILL 7'", set()),
    ],
)
def test_a_kill_names_the_connection_that_it_ends_or_may_end_any(
    text: str, named: set[int]
) -> None:
    meaning = meaning_of(text)
    ends = [DONE] * len(meaning.statements)
    assert ended(Command.QUERY, text.encode(), meaning, ends) == named


def test_who_fails_to_kill_ends_nobody() -> None:
    text = "KILL 7; SELECT 1; KILL 8"
    query, meaning = (Command.QUERY, text.encode()), meaning_of(text)
    assert ended(*query, meaning, [FAILED]) == set()
    assert ended(*query, meaning, [DONE, DONE, FAILED]) == {7}
    assert ended(*query, meaning, [DONE, FAILED], before=1) == set()
    assert ended(*query, meaning, [DONE, DONE], before=1) == {8}
    assert ended(Command.PROCESS_KILL, b"\7\0\0\0", Meaning(), [FAILED]) == set()


def test_so_does_a_command_of_the_protocol() -> None:
    assert ended(Command.PROCESS_KILL, b"\7\1\0\0", Meaning(), [DONE]) == {263}
    assert ended(Command.PING, b"", Meaning(), [DONE]) == set()


@pytest.mark.parametrize(
    ("killed", "doubted"),
    [({7}, "a"), ({8, 9}, "b"), ({7 + (1 << 32)}, "a"), (ANY, "ab"), ({9}, "")],
)
def test_those_are_in_doubt_whose_connections_these_are(
    killed: Collection[int], doubted: str
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
    kills.ran(killed)
    assert "".join(told) == doubted
