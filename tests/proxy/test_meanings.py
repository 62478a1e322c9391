"""What commands mean, and what finding that out costs others."""

import asyncio

from sqlcache.mysql.constants import Command
from sqlcache.mysql.packets import packet
from sqlcache.proxy.commands import ClientCommand
from sqlcache.proxy.meanings import ON_THE_LOOP_BYTES, Meanings
from tests.proxy.fill_memory import planner_and_session


def command(text: bytes, code: Command = Command.QUERY) -> ClientCommand:
    return ClientCommand(code, packet(0, bytes((code,)) + text), whole=True)


async def test_others_go_on_while_a_long_text_is_read() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        ors = command(b"SELECT a FROM t1 WHERE " + b" OR ".join([b"a = b"] * 30_000))
        turns = 0
        reading = asyncio.ensure_future(meanings.read_ahead(ors, state))
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
        (statement,) = meanings.of(ors, state).statements
        assert statement.reason == "is too long to be judged"
        assert not meanings.of(ors, state).writes


async def test_a_text_read_ahead_means_what_it_does_read_at_once() -> None:
    async with planner_and_session() as (planner, state):
        listed = b", ".join([b"?"] * ON_THE_LOOP_BYTES)
        text = b"SELECT a FROM t1 WHERE a IN (" + listed + b")"
        ahead, at_once = Meanings(planner), Meanings(planner)
        for code in (Command.STMT_PREPARE, Command.QUERY):
            read = command(text, code)
            await ahead.read_ahead(read, state)
            assert ahead.of(read, state) == at_once.of(read, state)
        prepare = command(text, Command.STMT_PREPARE)
        await ahead.read_ahead(prepare, state)
        ahead.remember(1, ON_THE_LOOP_BYTES, prepare, state)
        execute = command((1).to_bytes(4, "little"), Command.STMT_EXECUTE)
        known = ahead.prepared(execute)
        assert known is not None
        assert known.dateless == (True,) * ON_THE_LOOP_BYTES


async def test_what_is_prepared_is_followed_as_long_as_there_is_room() -> None:
    async with planner_and_session(max_bytes=1 << 20) as (planner, state):
        meanings = Meanings(planner)
        prepare = command(b"SELECT a FROM t1 WHERE b = '" + b"x" * 5_000 + b"' AND c = ?")
        for number in range(100):
            meanings.remember(number, 1, prepare, state)
        followed = [
            number
            for number in range(100)
            if meanings.prepared(command(number.to_bytes(4, "little"), Command.STMT_EXECUTE))
        ]
        assert followed == list(range(len(followed)))
        assert 2 < len(followed) < 60
        assert planner.prepared.size_bytes < planner.prepared.max_bytes + 20_000
        last = meanings.of(command((99).to_bytes(4, "little"), Command.STMT_EXECUTE), state)
        assert last.statements[0].reads
        assert not last.writes
        meanings.forget()
        assert planner.prepared.size_bytes == 0
