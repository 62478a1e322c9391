"""Connections for what sqlcache itself asks of MySQL: how they are opened, and queries made."""

import asyncio
import contextlib
import socket
import struct
from ssl import SSLContext
from typing import Any

from pymysql.constants import CLIENT, CR

from sqlcache.driver import DriverConnection, MysqlPacket, aiomysql
from sqlcache.errors import AccountRefused, UpstreamError
from sqlcache.host_names import addresses
from sqlcache.mysql.constants import (
    CR_SSL_CONNECTION_ERROR,
    ERRORS_OF_CLIENTS,
    LETS_NOBODY_IN,
    MAX_PAYLOAD_BYTES,
)
from sqlcache.patience import Patience
from sqlcache.process.forks import leave_at_fork

Row = tuple[Any, ...]

_SSL_REQUEST = struct.Struct("<iIB23x")
_UTF8MB4 = 45  # its collation utf8mb4_general_ci, which every server has
_CLOSE_S = 1.0

_ROWS_A_TURN = 500
"""Rows that are read in one turn of the event loop, a few milliseconds."""

SESSION_FOR_READING = (
    "SET sql_mode = '', sql_select_limit = 18446744073709551615, sql_big_selects = 1,"
    " wait_timeout = 2147483, lock_wait_timeout = 31536000 /*!80000 , max_execution_time = 0 */"
    " /*M!100101 , max_statement_time = 0 */"
    " /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
)
"""Undoes globals that would cut short or refuse sqlcache's own queries, end its connection, or hide
keys that MySQL has made."""


_CLEAR, _OLD = "mysql_clear_password", "mysql_old_password"
"""Plugins by which the password is sent as it is, or as good as that."""


class _QuietCursor(aiomysql.SSCursor):  # type: ignore[misc]  # it has no type information
    """Does not fetch and print warnings: every view that has lost its tables gives one."""

    async def _show_warnings(self, conn: aiomysql.Connection) -> None:
        return


class _Connection(DriverConnection):
    """Begins TLS on the transport it has, which aiomysql cannot under uvloop, and never logs in
    without it where it is required."""

    def __init__(self, *, tls: SSLContext | None, tls_required: bool, **options: Any) -> None:
        super().__init__(**options)
        self._name: str = options["host"]
        self._tls = tls
        self._tls_required = tls_required

    async def _connect(self) -> None:
        if self._unix_socket:
            await super()._connect()
            return
        failed: Exception = OSError(f"{self._name} has no address")
        for address in await addresses(self._name):
            self._host = address
            try:
                await super()._connect()
            except aiomysql.OperationalError as error:
                if error.args[0] != CR.CR_CONN_HOST_ERROR:
                    raise
                failed = error
            else:
                return
        raise failed

    async def take_over(self, sock: socket.socket, received: bytes) -> None:
        """Logs in on a connection that is there already, and on which so much has come. The caller
        may close the socket."""
        reader = asyncio.StreamReader()
        reader.feed_data(received)
        protocol = asyncio.StreamReaderProtocol(reader)
        # Under TLS a transport ends later than it is closed. Whoever closes its socket meanwhile
        # gives the number, to which the event loop still listens, to another connection.
        own = sock.dup()
        transport, _ = await self._loop.create_connection(lambda: protocol, sock=own)
        self._reader = reader
        self._writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        self._secure = bool(self._unix_socket)
        self._next_seq_id = 0
        try:
            await self._get_server_information()
            await self._request_authentication()
        except BaseException:
            transport.abort()
            raise

    async def _request_authentication(self) -> None:
        leave_at_fork(self._writer.transport)
        if self._tls is not None and self.server_capabilities & CLIENT.SSL:
            self.client_flag |= CLIENT.SSL | CLIENT.MULTI_RESULTS
            self.write_packet(_SSL_REQUEST.pack(self.client_flag, MAX_PAYLOAD_BYTES, _UTF8MB4))
            await self._start_tls(self._tls)
            self._secure = True
        elif self._tls_required:
            raise aiomysql.OperationalError(CR_SSL_CONNECTION_ERROR, "the server offers no TLS")
        # Without one, as long ago, or a change to one that has no name, it would be the old one.
        named = self._server_auth_plugin if self.server_capabilities & CLIENT.PLUGIN_AUTH else _OLD
        self._refuse_to_tell_the_password(named)
        self._read_packet = self._read_login_packet
        try:
            await super()._request_authentication()
        finally:
            del self._read_packet

    async def _read_login_packet(self, packet_type: Any = MysqlPacket) -> Any:
        answer = await super()._read_packet(packet_type)
        if answer.is_auth_switch_request() and b"\0" not in answer.get_all_data():
            self._refuse_to_tell_the_password(_OLD)
        return answer

    async def _process_auth(self, plugin_name: bytes, auth_packet: Any) -> Any:
        self._refuse_to_tell_the_password(plugin_name.decode("latin-1"))
        return await super()._process_auth(plugin_name, auth_packet)

    def _refuse_to_tell_the_password(self, plugin: str) -> None:
        """Else whoever stands between, or in MySQL's place, need only ask for it."""
        if plugin == _OLD or (plugin == _CLEAR and not self._secure):
            lacks = "" if plugin == _OLD else " without TLS"
            raise aiomysql.OperationalError(
                CR.CR_AUTH_PLUGIN_CANNOT_LOAD, f"the server asks for {plugin!r}{lacks}"
            )

    async def _start_tls(self, context: SSLContext) -> None:
        try:
            await self._writer.start_tls(context, server_hostname=self._name)
        except OSError:
            # Its stream keeps the error as well, and asyncio would complain that nobody took it.
            self._writer.close()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._writer.wait_closed()
            raise


async def connect_service(
    host: str,
    port: int,
    user: str,
    password: str,
    connect_timeout_s: float,
    *,
    tls: SSLContext | None = None,
    tls_required: bool = False,
    unix_socket: str | None = None,
    on: tuple[socket.socket, bytes] | None = None,
) -> aiomysql.Connection:
    """Opens a connection for sqlcache's own queries: autocommit, utf8mb4, no limits on its reads.

    Where `unix_socket` is given, it is used and not `host` and `port`. `tls` is spoken if the
    server offers it; without it there is no login where it is `tls_required`.

    Where `on` is given it is a connection that was opened already, and what the server has said on
    it. Then the settings are left out: it is not for queries.

    `connect_timeout_s` bounds the whole of it: connecting, the handshake and the settings.

    Raises: UpstreamError; AccountRefused where the server is there and lets in others, perhaps.
    """
    address = unix_socket or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    try:
        with Patience(connect_timeout_s):
            connection = _Connection(
                tls=tls,
                tls_required=tls_required,
                host=host,
                port=port,
                unix_socket=unix_socket,
                user=user,
                password=password.encode().decode("latin-1"),  # whose bytes the driver sends
                charset="utf8mb4",
                autocommit=True,
                init_command=SESSION_FOR_READING,
                program_name="sqlcache",
            )
            await (connection.take_over(*on) if on else connection._connect())
            return connection
    except TimeoutError as error:
        raise UpstreamError(
            f"no connection to {address} as {user!r} within {connect_timeout_s} s"
        ) from error
    except (aiomysql.MySQLError, OSError) as error:
        if _is_about_the_account(error):
            raise AccountRefused(
                f"MySQL at {address} does not let in {user!r}, the account of upstream.url: {error}"
            ) from error
        why = f": {error.__cause__}" if isinstance(error.__cause__, OSError) else ""
        raise UpstreamError(f"no connection to {address} as {user!r}: {error}{why}") from error
    except Exception as error:  # whatever the driver makes of such bytes
        raise UpstreamError(
            f"no connection to {address} as {user!r}: what answers there speaks no MySQL: {error!r}"
        ) from error


def _is_about_the_account(error: Exception) -> bool:
    """Whether a login has failed for a reason that other accounts need not have."""
    code = error.args[0] if isinstance(error, aiomysql.MySQLError) and error.args else None
    of_server = isinstance(code, int) and code not in ERRORS_OF_CLIENTS
    return code == CR.CR_AUTH_PLUGIN_CANNOT_LOAD or (of_server and code not in LETS_NOBODY_IN)


async def rows_of(connection: aiomysql.Connection, query: str) -> list[Row]:
    """The rows that a query answers. Raises: UpstreamError."""
    rows: list[Row] = []
    try:
        async with connection.cursor(_QuietCursor) as cursor:
            await cursor.execute(query)
            while more := await cursor.fetchmany(_ROWS_A_TURN):
                rows += more
                await asyncio.sleep(0)  # what has come is read without a pause
    except Exception as error:  # of an answer that is none the driver makes whatever it may
        raise UpstreamError(f"sqlcache's own query failed: {error}; it was: {query}") from error
    return rows
