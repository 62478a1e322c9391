"""Connections to MySQL."""

import socket
import ssl

from sqlcache.proxy.server import Upstream
from sqlcache.tls import UpstreamTls


async def test_what_mysql_says_last_is_heard_where_it_takes_no_more() -> None:
    """As to a statement that is longer than it takes."""
    tls = UpstreamTls("disabled", ssl.create_default_context(), "", by_socket=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        upstream = await Upstream(host, port, None, 10, tls).connect(1 << 16)
        mysql, _ = server.accept()
        mysql.send(b"too long")
        mysql.close()
        while not upstream.closed:
            upstream.write(b"more")
            upstream.write(b"and more")  # which finds that the first was answered by a reset
            await upstream.wait()
        assert upstream.buffered == b"too long"
