"""The logins of sqlcache's own account at MySQL, and what is known of MySQL by them."""

import asyncio
import logging
import socket
from collections.abc import Callable

from sqlcache.driver import aiomysql
from sqlcache.errors import UpstreamError
from sqlcache.metrics import Metrics
from sqlcache.mysql.constants import ERRORS_OF_CLIENTS, MOST_OF_ACCOUNT, Command
from sqlcache.mysql.packets import packet
from sqlcache.service.opening import connect_service
from sqlcache.settings import UpstreamSettings
from sqlcache.tls import UpstreamTls
from sqlcache.upstream_errors import UpstreamErrors

log = logging.getLogger(__name__)


class OwnLogins:
    """Those of one process. `tls`: what they speak from here on. `on_success` is called after each
    that succeeds."""

    on_success: Callable[[], None]

    def __init__(
        self, upstream: UpstreamSettings, tls: UpstreamTls, metrics: Metrics, errors: UpstreamErrors
    ) -> None:
        self._upstream = upstream
        self.tls = tls
        self._metrics = metrics
        self._errors = errors
        self._password = upstream.read_password()
        self.trouble: UpstreamError | None = None
        """What became of the last connection, where it could not be had or was lost."""

    async def connect(self, on: tuple[socket.socket, bytes] | None = None) -> aiomysql.Connection:
        """A new connection, `on` one that MySQL has greeted if given. Raises: UpstreamError."""
        self._read_password()
        try:
            connection = await connect_service(
                self._upstream.host,
                self._upstream.port,
                self._upstream.user,
                self._password,
                self._upstream.connect_timeout_s,
                tls=self.tls.context if self.tls.wanted(client_has_it=True) else None,
                tls_required=self.tls.required,
                unix_socket=self._upstream.unix_socket,
                on=on,
            )
        except UpstreamError as error:
            if on is None:
                code = _code_of(error)
                self._count(code)
                if code not in MOST_OF_ACCOUNT:  # for which it must have been reached
                    self.failed(error)
            raise
        self._note(None)
        self.on_success()
        return connection

    def failed(self, trouble: UpstreamError) -> None:
        """A connection could not be had, or was lost."""
        self._note(trouble)

    def _note(self, trouble: UpstreamError | None) -> None:
        """Says once what is wrong, until that changes."""
        self._metrics.upstream_up = int(trouble is None)
        before, self.trouble = self.trouble, trouble
        if str(trouble) == str(before):
            return
        if trouble is None:
            log.info("MySQL is reached again address=%s", self._upstream.url.address)
        else:
            log.warning("MySQL is not reached, trying again error=%s", trouble)

    def _count(self, code: int | None) -> None:
        """By what error MySQL did not let sqlcache itself in; None where it said none."""
        if code is None:
            self._errors.unreachable()
        else:
            self._errors.refused(code)

    def _read_password(self) -> None:
        """As its file has it now. One that cannot be read, perhaps being replaced, changes
        nothing."""
        try:
            self._password = self._upstream.read_password()
        except ValueError as error:
            log.warning("password as before error=%s", error)


def close(connection: aiomysql.Connection | None) -> None:
    """Ends a connection so that MySQL does not count it as broken; also while it is read from,
    which aiomysql's own `close` does not allow."""
    if connection is not None and not connection.closed:
        connection._writer.write(packet(0, bytes((Command.QUIT,))))
        connection._writer.transport.close()
        asyncio.get_running_loop().call_soon(connection.close)


def _code_of(error: UpstreamError) -> int | None:
    """MySQL's own error, if it gave one."""
    cause = error.__cause__
    code = cause.args[0] if isinstance(cause, aiomysql.MySQLError) and cause.args else None
    return code if isinstance(code, int) and code not in ERRORS_OF_CLIENTS else None
