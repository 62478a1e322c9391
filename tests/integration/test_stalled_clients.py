"""Clients that stop amid what they send: their sessions end when MySQL's do, or by the limit."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import cast

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Command
from tests.conftest import ProxyFactory
from tests.fakes.middleman import Middleman
from tests.fakes.raw_client import OLD, Address, RawClient, packets_of

OPEN = "sqlcache_connections_open"
IDLE_S = 6.0
"""More than the pauses of a busy machine."""
STATEMENT = packets_of(b"\x03SELECT '" + bytes(2_000_000) + b"'")
BEGUN = {
    "a header": STATEMENT[:3],
    "a command": packets_of(b"\x03SELECT 1")[:7],
    "a long command": STATEMENT[:1_500_000],
    "an execution": packets_of(b"\x17" + bytes(100))[:50],
    "another user": packets_of(b"\x11root\0")[:7],
}
"""What is sent, and nothing behind it."""


def logged_in(relay: Address, upstream: PrivateSqlServer) -> RawClient:
    return RawClient.logged_in(relay, upstream.user, upstream.password)


def reached(relay: PrivateSqlcache) -> float:
    return relay.metrics()['sqlcache_limits_reached_total{limit="idle_timeout_s"}']


def begin(stack: ExitStack, relay: PrivateSqlcache, upstream: PrivateSqlServer) -> list[RawClient]:
    """Clients that have said the beginning of something each."""
    clients = [stack.enter_context(logged_in(relay, upstream)) for _ in BEGUN]
    for client, begun in zip(clients, BEGUN.values(), strict=True):
        client.sql(f"SET wait_timeout = {IDLE_S:.0f}, net_read_timeout = {IDLE_S:.0f}")
        client.send(begun)
    return clients


def test_who_stops_amid_a_command_ends_with_mysqls_connection(
    upstream: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    upstream.connect().close()
    relay = proxy(upstream, "memory")
    with ExitStack() as stack:
        for client in begin(stack, relay, upstream):
            client.read_to_end()
        wait_until(lambda: relay.metrics()[OPEN] == 0, 30, "their end")


def test_who_goes_on_after_mysql_has_ended_is_told_why(
    upstream: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    """By MySQL itself, if it says so."""
    upstream.connect().close()
    relay = proxy(upstream, "memory")
    with logged_in(upstream, upstream) as direct:
        direct.sql("SET wait_timeout = 1")
        expected = direct.read_to_end()
    with logged_in(relay, upstream) as client:
        own = f"SELECT 1 FROM information_schema.processlist WHERE id = {client.connection_id}"
        assert upstream.sql(own)
        client.sql("SET wait_timeout = 1")
        statement = packets_of(b"\x03SELECT 1")
        client.send(statement[:6])
        for each in statement[6:-1]:
            time.sleep(0.3)
            client.send(bytes((each,)))
        wait_until(lambda: not upstream.sql(own), 20, "MySQL's end of it")
        client.send(statement[-1:])
        assert client.read_to_end() == expected


def test_who_stops_amid_a_command_is_idle(upstream: PrivateSqlServer, proxy: ProxyFactory) -> None:
    upstream.connect().close()
    relay = proxy(upstream, "memory", proxy__idle_timeout_s=IDLE_S)
    with ExitStack() as stack:
        began = time.monotonic()
        clients = [stack.enter_context(logged_in(relay, upstream)) for _ in BEGUN]
        for client, begun in zip(clients, BEGUN.values(), strict=True):
            client.send(begun)
        for client in clients:
            assert b"because of inactivity" in client.read_to_end()
        assert IDLE_S <= time.monotonic() - began < 20
        wait_until(lambda: relay.metrics()[OPEN] == 0, 30, "their end")
    assert reached(relay) == len(BEGUN)


def test_who_goes_on_with_a_command_is_not(upstream: PrivateSqlServer, proxy: ProxyFactory) -> None:
    """However slowly."""
    upstream.connect().close()
    relay = proxy(upstream, "memory", proxy__idle_timeout_s=IDLE_S)
    statement = packets_of(b"\x03SELECT 'slow'")

    def go_on() -> bool:
        """False where nobody can tell: the host let them pause for as long as who is idle."""
        before = reached(relay)
        with logged_in(relay, upstream) as short, logged_in(relay, upstream) as long:
            last = time.monotonic()
            for at in range(len(statement)):
                try:
                    short.send(statement[at : at + 1])
                    long.send(STATEMENT[at * 120_000 : (at + 1) * 120_000])
                except OSError:
                    if time.monotonic() - last < IDLE_S / 2:
                        raise
                time.sleep(IDLE_S / 8)
                if time.monotonic() - last >= IDLE_S / 2:
                    return False
                last = time.monotonic()
            assert b"slow" in short.ask_bytes(b"")
            assert long.ask_bytes(STATEMENT[len(statement) * 120_000 :])[4] == 1
        assert reached(relay) == before
        return True

    assert any(go_on() for _ in range(3)), "they paused each time"


def test_who_waits_for_the_end_of_a_login_is_not_idle(
    upstream: PrivateSqlServer, proxy: ProxyFactory, schema: str
) -> None:
    """As where a plugin asks others, or a person."""
    upstream.connect().close()
    with Middleman(upstream) as between, ExitStack() as stack:
        relay = proxy(
            cast(PrivateSqlServer, between),
            "memory",
            proxy__idle_timeout_s=IDLE_S,
            proxy__login_timeout_s=60,
        )
        new = stack.enter_context(RawClient(relay))
        new.read_greeting()
        changing = stack.enter_context(logged_in(relay, upstream))
        between.stop_reading()
        new.send(packets_of(new.response(upstream.user, upstream.password, schema, OLD), 1))
        user = bytes((Command.CHANGE_USER,)) + upstream.user.encode() + b"\0\0\0\x2d\0"
        changing.command(user + changing.plugin.encode() + b"\0")
        time.sleep(1.5 * IDLE_S)
        told = json.loads(relay.fetch("/api/sessions"))["items"]
        between.read_again()
        assert [each["state"] for each in told] == ["busy", "busy"]
        for each in (new, changing):
            each.authenticate(upstream.password)
        assert reached(relay) == 0


def test_who_stops_amid_a_change_of_user_has_as_long_as_at_a_login(
    upstream: PrivateSqlServer, proxy: ProxyFactory
) -> None:
    upstream.connect().close()
    relay = proxy(upstream, "memory", proxy__login_timeout_s=IDLE_S)
    with logged_in(relay, upstream) as client:
        user = bytes((Command.CHANGE_USER,)) + upstream.user.encode() + b"\0\0\0\x2d\0"
        client.command(user + b"mysql_clear_password\0")
        assert client.read_packet()[1][:1] == b"\xfe", "it is asked for another answer"
        assert client.read_to_end() == b""
    assert relay.metrics()['sqlcache_logins_failed_total{code="timeout"}'] == 1
