"""Clients that make sqlcache compute for nothing, by TLS."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sqlcache.demo.servers import PrivateSqlcache, PrivateSqlServer
from sqlcache.mysql.constants import Capability
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import OLD, RawClient
from tests.fakes.tls_records import Records
from tests.integration.test_hostile_clients import is_hit, reader

__all__ = ["reader"]  # a fixture

FLOOD, MOST_S = 30_000, 0.3
"""Changes of keys, which took 0.8 s of a processor of 2023."""


@pytest.fixture
def relay(upstream: PrivateSqlServer, proxy: ProxyFactory) -> PrivateSqlcache:
    """sqlcache that speaks TLS."""
    upstream.connect().close()  # so that caching_sha2_password knows the password
    seldom = {"upstream__catalog_refresh_s": 3600}
    return proxy(upstream, "memory", proxy__tls_auto=True, upstream__tls="disabled", **seldom)


@pytest.mark.parametrize("logged_in", [False, True])
def test_who_changes_keys_all_the_time_is_cut_off_and_holds_up_nobody(
    upstream: PrivateSqlServer,
    relay: PrivateSqlcache,
    reader: Any,
    schema: str,
    tmp_path: Path,
    logged_in: bool,
) -> None:
    asks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asks.check_hostname, asks.verify_mode = False, ssl.CERT_NONE
    asks.keylog_filename = str(tmp_path / "keys")
    with RawClient(relay) as client:
        client.read_greeting()
        client.start_tls(asks, OLD, one_segment=False)
        records = Records(tmp_path / "keys")
        client.socket.sendall(records.key_update(asks=True))
        if logged_in:
            client.send = lambda data: client.socket.sendall(records.data(data))  # type: ignore[method-assign]
            client.log_in(upstream.user, upstream.password, schema, OLD | Capability.SSL, 2)
        flood = b"".join(records.key_update(asks=True) for _ in range(FLOOD))
        before = relay.cpu_s()
        with suppress(ConnectionError):
            client.socket.sendall(flood)
        with suppress(ConnectionResetError):
            while client.socket.recv(1 << 16):
                pass
    assert all(is_hit(relay, reader) for _ in range(5))
    assert relay.cpu_s() - before < MOST_S
