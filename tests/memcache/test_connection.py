from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from sqlcache.demo.servers import PrivateMemcached, free_port, wait_until
from sqlcache.errors import CacheUnavailable
from sqlcache.memcache import connection
from sqlcache.memcache.connection import Node, NodeConnection
from sqlcache.memcache.memory import MemoryNode
from sqlcache.memcache.protocol import META_NOOP, Reply, meta_get, meta_set
from sqlcache.metric_kinds import Histogram
from tests.fakes.watched_node import Watched
from tests.proxy.test_session import unread_bytes_from

_TRANSPORT: Any = asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
NOOP_REPLY: Reply = (b"MN", None, b"")
Answers = list[list[Reply] | None]


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[Watched]:
    """A connection that stands, with settings fit for tests."""
    options = {"timeout_s": 5.0, "reconnect_min_s": 0.01, "reconnect_max_s": 0.05} | options
    node = Watched("node-1", "127.0.0.1", port, **options)
    try:
        await node.wait_connected(20.0)
        yield node
    finally:
        await node.close()


async def until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Return as soon as the condition holds, looking at it every turn of the loop."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)


def is_up(node: NodeConnection) -> bool:
    """Whether its connection stands."""
    return node._pipeline is not None


async def answers_to_large(node: Node) -> Answers:
    """Those to what stores and reads 300,000 and 400,000 bytes, all sent at once."""
    answers: Answers = []
    stores = [meta_set(b"k", b"a" * 300_000, ttl_s=60), meta_set(b"l", b"x" * 4, ttl_s=60)]
    node.submit(b"".join(stores), 2, answers.append)
    node.submit(meta_get(b"k"), 1, answers.append)
    more = meta_set(b"l", b"b" * 400_000, ttl_s=60) + meta_get(b"l")
    node.submit(more, 2, answers.append)
    node.submit(META_NOOP, 1, answers.append)
    await until(lambda: len(answers) == 4)
    return answers


def frozen(server: PrivateMemcached) -> None:
    """Freeze it, and return when each of its threads has come to a stop."""
    server.freeze()

    def stopped(task: Path) -> bool:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"

    tasks = list(Path(f"/proc/{server.pid}/task").iterdir())
    wait_until(lambda: all(map(stopped, tasks)), 20, "memcached's threads stop")


def stall_until_answered(server: PrivateMemcached) -> None:
    """Holds up this process until an answer waits to be read, however late the server is."""
    wait_until(lambda: unread_bytes_from(server.port) > 0, 20, "memcached's answer")


@pytest.fixture(params=["memcached", "memory"])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    """Each kind of node, up."""
    if request.param == "memory":
        yield MemoryNode()
        return
    server: PrivateMemcached = request.getfixturevalue("memcached")
    async with connected(server.port) as connection:
        yield connection


class TestEveryNode:
    """What holds for a memcached and for the node in this process alike."""

    async def test_batches_are_answered_in_order_with_as_many_replies_as_requests(
        self, node: Node
    ) -> None:
        answers: Answers = []
        node.submit(meta_set(b"k", b"v\r\n", ttl_s=60) + meta_get(b"k"), 2, answers.append)
        node.submit(META_NOOP, 1, answers.append)
        node.submit(meta_get(b"none") + META_NOOP + meta_get(b"k", b"s"), 3, answers.append)
        await until(lambda: len(answers) == 3)
        assert answers == [
            [(b"HD", None, b""), (b"VA", b"v\r\n", b"")],
            [NOOP_REPLY],
            [(b"EN", None, b""), NOOP_REPLY, (b"HD", None, b"s3")],
        ]

    async def test_batches_of_many_bytes_are_answered_in_order_as_well(self, node: Node) -> None:
        assert await answers_to_large(node) == [
            [(b"HD", None, b"")] * 2,
            [(b"VA", b"a" * 300_000, b"")],
            [(b"HD", None, b""), (b"VA", b"b" * 400_000, b"")],
            [NOOP_REPLY],
        ]

    async def test_a_batch_of_no_requests_has_no_replies(self, node: Node) -> None:
        assert await node.request(b"", 0) == []

    async def test_done_is_never_called_inside_submit(self, node: Node) -> None:
        answers: Answers = []
        for round_ in range(2):
            node.submit(META_NOOP, 1, answers.append)
            assert len(answers) == round_
            await until(lambda: answers)
            await node.close()
            await asyncio.sleep(0)

    async def test_a_callback_that_raises_is_logged_and_harms_no_other(
        self, node: Node, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(replies: list[Reply] | None) -> None:
            raise RuntimeError("broken callback")

        answers: Answers = []
        for done in (broken, answers.append, broken, answers.append):
            node.submit(META_NOOP, 1, done)
        await until(lambda: len(answers) == 2)
        assert answers == [[NOOP_REPLY], [NOOP_REPLY]]
        assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
            "broken callback"
        ] * 2
        assert await node.request(META_NOOP, 1) == [NOOP_REPLY]

    async def test_a_callback_may_submit(self, node: Node) -> None:
        answers: Answers = []
        node.submit(META_NOOP, 1, lambda _: node.submit(meta_get(b"k"), 1, answers.append))
        await until(lambda: answers)
        assert answers == [[(b"EN", None, b"")]]

    async def test_cancelling_a_request_does_not_disturb_the_others(self, node: Node) -> None:
        first, second, third = (
            asyncio.create_task(node.request(payload, 1))
            for payload in (META_NOOP, META_NOOP, meta_get(b"k"))
        )
        await asyncio.sleep(0)
        second.cancel()
        assert await first == [NOOP_REPLY]
        assert await third == [(b"EN", None, b"")]
        assert second.cancelled()

    async def test_a_closed_node_is_unavailable_and_answers_none(self, node: Node) -> None:
        await node.close()
        with pytest.raises(CacheUnavailable, match=node.name):
            await node.request(META_NOOP, 1)
        await node.close()


def kill_and_restart(memcached: PrivateMemcached) -> None:
    memcached.kill()
    memcached.restart()


async def test_all_submits_of_one_turn_leave_in_one_write(
    memcached: PrivateMemcached, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    write = _TRANSPORT.write

    def recording_write(transport: Any, data: bytes) -> None:
        writes.append(data)
        write(transport, data)

    monkeypatch.setattr(_TRANSPORT, "write", recording_write)
    async with connected(memcached.port) as node:
        written_before = node.writes
        writes.clear()
        answers: Answers = []
        for _ in range(50):
            node.submit(META_NOOP * 2, 2, answers.append)
        await until(lambda: len(answers) == 50)
        assert answers == [[NOOP_REPLY] * 2] * 50
        assert writes == [META_NOOP * 100]
        assert node.writes - written_before == 1
        assert node.bytes_in == 101 * len(b"MN\r\n")


async def test_how_long_a_write_takes_to_be_answered_is_counted(
    memcached: PrivateMemcached, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = Histogram()
    async with connected(memcached.port, round_trips=took) as node:
        for _ in range(2 * connection.TIMED_OF_WRITES):
            await node.request(META_NOOP, 1)
    assert sum(took.counts) == 2
    monkeypatch.setattr(connection, "TIMED_OF_WRITES", 1)
    async with connected(memcached.port, round_trips=took) as node:
        before = sum(took.counts)
        for _ in range(3):  # all of a turn leave together
            node.submit(META_NOOP * 2, 2, lambda _: None)
        await node.request(META_NOOP, 1)
        assert sum(took.counts) == before + 1
        await node.request(META_NOOP, 1)
        assert sum(took.counts) == before + 2
        memcached.freeze()
        slept, written = took.sum_s, node.writes
        asked = asyncio.ensure_future(node.request(META_NOOP, 1))
        await until(lambda: node.writes > written)
        asyncio.get_running_loop().call_later(0.3, memcached.thaw)
        await asked
        assert 0.25 < took.sum_s - slept < 20


async def test_replies_that_come_byte_by_byte_are_put_together(scripted_node: Any) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(META_NOOP)
        for byte in b"VA 4 c1\r\n\r\n\r\n\r\nEN\r\nMN\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    await scripted_node.start(script)
    async with connected(scripted_node.port) as node:
        first = node.request(meta_get(b"k", b"v c"), 1)
        second = node.request(meta_get(b"l") + META_NOOP, 2)
        assert list(await asyncio.gather(first, second)) == [
            [(b"VA", b"\r\n\r\n", b"c1")],
            [(b"EN", None, b""), NOOP_REPLY],
        ]


@pytest.mark.parametrize(
    "reply",
    [
        b"rubbish\r\n",
        b"MN\r\nrubbish\r\n",
        b"CLIENT_ERROR bad data chunk\r\n",
        b"VA 5\r\nab",
        b"VA 1\r\nab\r\nMN\r\n",
        b"MN\r\nM",
        b"",
    ],
)
async def test_after_rubbish_or_a_cut_nothing_more_is_believed_and_it_connects_again(
    scripted_node: Any, reply: bytes
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if scripted_node.connections == 1:
            await reader.readuntil(META_NOOP * 3)
            writer.write(reply)
            return
        while await reader.readuntil(META_NOOP):
            writer.write(b"MN\r\n")

    await scripted_node.start(script)
    async with connected(scripted_node.port) as node:
        answers: Answers = []
        node.submit(META_NOOP * 2, 2, answers.append)
        node.submit(META_NOOP, 1, answers.append)
        await until(lambda: len(answers) == 2)
        assert answers == [None, None]
        await node.wait_connected(20.0)
        assert await node.request(META_NOOP, 1) == [NOOP_REPLY]
        assert (node.lost["node-1"], scripted_node.connections) == (1, 2)


async def test_a_reply_that_nobody_asked_for_ends_the_connection(scripted_node: Any) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if scripted_node.connections == 1:
            await reader.readuntil(META_NOOP)
            writer.write(b"MN\r\nMN\r\n")
        await reader.read()

    await scripted_node.start(script)
    async with connected(scripted_node.port) as node:
        assert await node.request(META_NOOP, 1) == [NOOP_REPLY]
        await until(lambda: scripted_node.connections == 2)
        assert node.lost == {"node-1": 1}


async def test_a_killed_memcached_answers_none_to_all_and_comes_back(
    memcached: PrivateMemcached,
) -> None:
    async with connected(memcached.port) as node:
        ups: list[bool] = []
        node.on_up = lambda: ups.append(True)
        await node.request(meta_set(b"k", b"v", ttl_s=0), 1)
        frozen(memcached)
        answers: Answers = []
        for _ in range(20):
            node.submit(meta_get(b"k"), 1, answers.append)
        await asyncio.sleep(0)
        memcached.kill()
        await until(lambda: len(answers) == 20)
        assert answers == [None] * 20
        assert ups == []

        await asyncio.to_thread(memcached.restart)
        await node.wait_connected(20.0)
        assert ups == [True]
        assert await node.request(meta_get(b"k"), 1) == [(b"EN", None, b"")]
        assert node.lost["node-1"] == 1


async def test_a_memcached_killed_under_load_never_gives_an_answer_to_the_wrong_request(
    memcached: PrivateMemcached,
) -> None:
    async with connected(memcached.port) as node:
        tally = {"right": 0, "none": 0, "wrong": 0}

        def check(number: int, replies: list[Reply] | None) -> None:
            if replies is None:
                tally["none"] += 1
                return
            expected = [(b"HD", None, b"O%d" % number), (b"VA", b"%d" % number, b"O%d" % number)]
            tally["right" if replies == expected else "wrong"] += 1

        def submit(number: int) -> None:
            opaque, key = b"O%d" % number, b"key-%d" % number
            store = meta_set(key, b"%d" % number, ttl_s=0, flags=opaque)
            payload = store + meta_get(key, b"v " + opaque)
            node.submit(payload, 2, lambda replies: check(number, replies))

        sent = 0
        for _ in range(3):
            right_before = tally["right"]
            killing: asyncio.Future[None] | None = None
            while killing is None or not killing.done() or not is_up(node):
                for _ in range(20):
                    submit(sent)
                    sent += 1
                await asyncio.sleep(0.001)
                if killing is None and tally["right"] >= right_before + 200:
                    killing = asyncio.ensure_future(asyncio.to_thread(kill_and_restart, memcached))
        await until(lambda: sum(tally.values()) == sent)
        assert tally["wrong"] == 0
        assert tally["none"] > 0
        assert node.lost["node-1"] == 3


async def test_a_frozen_memcached_is_dropped_at_the_deadline_and_not_up_until_it_answers(
    memcached: PrivateMemcached,
) -> None:
    loop = asyncio.get_running_loop()
    async with connected(memcached.port, timeout_s=0.2, connect_timeout_s=0.2) as node:
        ups: list[float] = []
        node.on_up = lambda: ups.append(loop.time())
        frozen(memcached)
        began = loop.time()
        answers: Answers = []
        for _ in range(10):
            node.submit(META_NOOP, 1, answers.append)
        await until(lambda: len(answers) == 10)
        assert answers == [None] * 10
        assert 0.15 < loop.time() - began < 20
        assert not is_up(node)
        assert node.lost["node-1"] == 1

        # The kernel goes on accepting for the frozen process; that must not pass for an answer.
        failed_before = node.failed
        await until(lambda: node.failed >= failed_before + 2)
        assert ups == []

        node.timeout_s = node._connect_timeout_s = 20  # how long it takes now is not limited
        memcached.thaw()
        await node.wait_connected(20.0)
        assert len(ups) == 1
        assert await node.request(META_NOOP, 1) == [NOOP_REPLY]


async def test_a_late_answer_never_reaches_a_later_request(scripted_node: Any) -> None:
    late = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if scripted_node.connections == 1:
            await reader.readuntil(b"mg first v\r\n")
            await late.wait()
            writer.write(b"VA 5\r\nfirst\r\n")
            await writer.drain()
            return
        await reader.readuntil(b"mg second v\r\n")
        late.set()
        writer.write(b"VA 6\r\nsecond\r\n")
        await reader.read()

    await scripted_node.start(script)
    async with connected(scripted_node.port, timeout_s=0.2) as node:
        with pytest.raises(CacheUnavailable):
            await node.request(meta_get(b"first"), 1)
        await node.wait_connected(20.0)
        assert await node.request(meta_get(b"second"), 1) == [(b"VA", b"second", b"")]


async def test_a_deadline_counts_from_each_batchs_own_write(scripted_node: Any) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(5):
            await reader.readuntil(META_NOOP)
            await asyncio.sleep(0.1)
            writer.write(b"MN\r\n")
        await reader.read()

    await scripted_node.start(script)
    async with connected(scripted_node.port, timeout_s=0.3) as node:
        for _ in range(5):
            assert await node.request(META_NOOP, 1) == [NOOP_REPLY]
        assert node.lost["node-1"] == 0
        with pytest.raises(CacheUnavailable):
            await node.request(META_NOOP, 1)
        assert node.lost["node-1"] == 1


async def test_who_is_answered_at_length_waits_on_but_not_for_ever(scripted_node: Any) -> None:
    """As with many large hits on a slow network, of which half has arrived at the deadline."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"mg large v\r\n")
        writer.write(b"VA 40\r\n")
        for _ in range(20):
            await asyncio.sleep(0.05)
            writer.write(b"..")
        writer.write(b"\r\n")
        await reader.readuntil(b"mg endless v\r\n")
        writer.write(b"VA 400\r\n")
        while not writer.is_closing():
            writer.write(b".")
            await asyncio.sleep(0.05)

    await scripted_node.start(script)
    loop = asyncio.get_running_loop()
    async with connected(scripted_node.port, timeout_s=0.5, longest_s=2.0) as node:
        assert await node.request(meta_get(b"large"), 1) == [(b"VA", b"." * 40, b"")]
        assert node.lost["node-1"] == 0
        began = loop.time()
        with pytest.raises(CacheUnavailable):
            await node.request(meta_get(b"endless"), 1)
        assert node.lost["node-1"] == 1
        assert loop.time() - began > 1.9


@pytest.mark.parametrize("idle", [False, True])
async def test_what_came_before_a_batch_was_sent_does_not_put_its_deadline_off(
    memcached: PrivateMemcached, idle: bool
) -> None:
    async with connected(memcached.port, timeout_s=2.0, longest_s=10.0) as node:
        pipeline = node._pipeline
        assert pipeline is not None
        assert await node.request(META_NOOP, 1) == [NOOP_REPLY]
        if idle:
            await until(lambda: pipeline._timer is None)
        memcached.freeze()
        try:
            node.submit(META_NOOP, 1, lambda _: None)
            await asyncio.sleep(0.1)
            deadline = pipeline._batches[0][2].deadline
            assert pipeline._put_off(deadline, pipeline._turning()) == deadline
        finally:
            memcached.thaw()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_stall_of_this_process_before_the_write_is_not_counted(
    memcached: PrivateMemcached, run: Callable[..., None]
) -> None:
    async def scenario() -> None:
        async with connected(memcached.port, timeout_s=0.1) as node:
            answers: Answers = []
            node.submit(META_NOOP, 1, answers.append)
            time.sleep(0.3)  # noqa: ASYNC251
            await until(lambda: node.writes == 2)
            if not answers:
                stall_until_answered(memcached)
            await until(lambda: answers)
            assert answers == [[NOOP_REPLY]]
            assert node.lost["node-1"] == 0

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_an_answer_that_came_while_this_process_stalled_is_read_before_it_is_called_late(
    memcached: PrivateMemcached, run: Callable[..., None]
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        async with connected(memcached.port, timeout_s=0.2) as node:
            frozen(memcached)
            outstanding = asyncio.create_task(node.request(META_NOOP, 1))
            await until(lambda: node.writes == 2)

            def stall() -> None:
                loop.remove_reader(near)
                memcached.thaw()
                time.sleep(0.4)
                stall_until_answered(memcached)

            # By another's bytes: what comes meanwhile is not among what the loop has just found.
            loop.add_reader(near, stall)
            far.send(b"x")
            assert await outstanding == [NOOP_REPLY]
            assert node.lost["node-1"] == 0
        near.close()
        far.close()

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_what_this_process_was_late_itself_is_not_held_against_the_node(
    memcached: PrivateMemcached, run: Callable[..., None]
) -> None:
    """On a busy host both are: when this process gets a processor, the node has not had one."""

    async def scenario() -> None:
        async with connected(memcached.port, timeout_s=0.4) as node:
            frozen(memcached)
            outstanding = asyncio.create_task(node.request(META_NOOP, 1))
            await until(lambda: node.writes == 2)
            for _ in range(3):
                time.sleep(0.3)  # noqa: ASYNC251
                await asyncio.sleep(0.01)
            memcached.thaw()
            stall_until_answered(memcached)
            assert await outstanding == [NOOP_REPLY]
            assert node.lost["node-1"] == 0

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_batch_submitted_just_before_the_timer_fires_has_a_deadline_too(
    memcached: PrivateMemcached, run: Callable[..., None]
) -> None:
    async def scenario() -> None:
        async with connected(memcached.port, timeout_s=0.1) as node:
            answers: Answers = []

            def stall_and_submit(replies: list[Reply] | None) -> None:
                frozen(memcached)
                time.sleep(0.15)
                node.submit(META_NOOP, 1, answers.append)

            node.submit(META_NOOP, 1, stall_and_submit)
            await until(lambda: answers)
            assert answers == [None]

    run(scenario())


async def test_while_there_is_no_node_none_comes_at_the_next_turn() -> None:
    node = NodeConnection("gone", "127.0.0.1", free_port(), timeout_s=5.0)
    try:
        answers: Answers = []
        node.submit(META_NOOP, 1, answers.append)
        assert answers == []
        await asyncio.sleep(0)
        assert answers == [None]
        with pytest.raises(CacheUnavailable, match="gone"):
            await node.wait_connected(0.05)
    finally:
        await node.close()


async def test_the_wait_between_attempts_doubles_up_to_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def recording_sleep(delay_s: float) -> None:
        waits.append(delay_s)
        await sleep(0)

    monkeypatch.setattr("sqlcache.memcache.connection.asyncio.sleep", recording_sleep)
    node = NodeConnection(
        "gone", "127.0.0.1", free_port(), timeout_s=1, reconnect_min_s=1, reconnect_max_s=10
    )
    async with asyncio.timeout(20):
        while len(waits) < 40:
            await sleep(0.001)
    await node.close()
    for wait_s, longest in zip(waits, [1, 2, 4, 8] + [10] * 36, strict=False):
        assert longest / 2 <= wait_s <= longest
    assert len(set(waits)) > 30


async def test_more_than_may_be_outstanding_is_answered_none_until_there_is_room(
    scripted_node: Any,
) -> None:
    go = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        while await reader.readuntil(META_NOOP):
            writer.write(b"MN\r\n")

    await scripted_node.start(script)
    async with connected(scripted_node.port, max_outstanding_bytes=3 * len(META_NOOP)) as node:
        answers: Answers = []
        for _ in range(5):
            node.submit(META_NOOP, 1, answers.append)
        await until(lambda: len(answers) == 2)
        assert answers == [None, None]
        go.set()
        await until(lambda: len(answers) == 5)
        assert answers[2:] == [[NOOP_REPLY]] * 3
        assert await node.request(META_NOOP * 3, 3) == [NOOP_REPLY] * 3


async def test_closing_answers_everything_outstanding_none(scripted_node: Any) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    await scripted_node.start(script)
    async with connected(scripted_node.port) as node:
        answers: Answers = []
        node.submit(META_NOOP, 1, answers.append)
        await asyncio.sleep(0)
        node.submit(META_NOOP, 1, answers.append)
        await node.close()
        assert answers == [None, None]


async def test_a_callback_told_none_finds_the_node_unavailable_and_may_submit_again(
    scripted_node: Any,
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(META_NOOP)

    await scripted_node.start(script)
    async with connected(scripted_node.port) as node:
        answers: list[object] = []

        def again(replies: list[Reply] | None) -> None:
            answers.append((replies, is_up(node)))
            node.submit(META_NOOP, 1, answers.append)

        node.submit(META_NOOP, 1, again)
        await until(lambda: len(answers) == 2)
        assert answers == [(None, False), None]


async def test_an_on_up_that_raises_is_logged_and_the_node_serves(
    scripted_node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(META_NOOP):
            writer.write(b"MN\r\n")

    def broken() -> None:
        raise RuntimeError("broken on_up")

    await scripted_node.start(script)
    node = NodeConnection("node-1", "127.0.0.1", scripted_node.port, timeout_s=5.0)
    node.on_up = broken
    try:
        await node.wait_connected(20.0)
        assert await node.request(META_NOOP, 1) == [NOOP_REPLY]
        assert "broken on_up" in caplog.text
    finally:
        await node.close()


async def test_going_up_and_down_is_logged_once_each(
    memcached: PrivateMemcached, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sqlcache.memcache.connection")
    async with connected(memcached.port) as node:
        memcached.kill()
        await until(lambda: not is_up(node))
        failed_before = node.failed
        await until(lambda: node.failed > failed_before + 3)
    told = [record.getMessage().split(" reason")[0] for record in caplog.records]
    assert told == [
        "memcached node is reached node=node-1",
        "memcached node is not reached node=node-1",
    ]


async def test_a_node_that_is_not_there_from_the_start_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Watched("gone", "127.0.0.1", free_port(), timeout_s=1, reconnect_min_s=0.001)
    await until(lambda: node.failed >= 3)
    await node.close()
    (record,) = caplog.records
    assert record.getMessage().startswith("memcached node is not reached node=gone reason=")
    assert "Connect" in record.getMessage()
    assert record.getMessage().endswith("; it never was: is it right in memcached.nodes?")


def test_on_uvloop_it_connects_serves_and_comes_back_as_well(memcached: PrivateMemcached) -> None:
    async def scenario() -> None:
        async with connected(memcached.port) as node:
            value = b"x" * 500_000
            replies = await node.request(meta_set(b"k", value, ttl_s=0) + meta_get(b"k"), 2)
            assert replies == [(b"HD", None, b""), (b"VA", value, b"")]
            assert [len(each or ()) for each in await answers_to_large(node)] == [2, 1, 2, 1]
            frozen(memcached)
            outstanding = asyncio.create_task(node.request(META_NOOP, 1))
            await asyncio.sleep(0)
            await asyncio.to_thread(memcached.kill)
            with pytest.raises(CacheUnavailable):
                await outstanding
            await asyncio.to_thread(memcached.restart)
            await node.wait_connected(20.0)
            assert await node.request(meta_get(b"k"), 1) == [(b"EN", None, b"")]

    uvloop.run(scenario())
