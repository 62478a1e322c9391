"""The login, relayed: MySQL itself checks the password; see `authentication`.

Packets go through unchanged but for four things: the greeting offers only what sqlcache can
follow; TLS ends here and begins anew towards the server; where only one side speaks TLS, sequence
ids differ by the one packet that asked for it; and a client may compress from the OK on, of which
the server knows nothing.
"""

import logging
from collections.abc import Awaitable, Collection
from typing import NoReturn

from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.mysql.compression import compress
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import (
    CR_SSL_CONNECTION_ERROR,
    ER_ACCESS_DENIED_NO_PASSWORD,
    ER_CON_COUNT_ERROR,
    ER_HOST_IS_BLOCKED,
    ER_HOST_NOT_PRIVILEGED,
    ER_SECURE_TRANSPORT_REQUIRED,
    ER_TOO_MANY_USER_CONNECTIONS,
    ER_WRONG_COMPRESSION_ALGORITHM_CLIENT,
    ER_WRONG_COMPRESSION_LEVEL_CLIENT,
    FOLLOWED,
    Capability,
)
from sqlcache.mysql.frames import OFFERED, Algorithm, NotOffered, WrongLevel, agreed
from sqlcache.mysql.handshake import (
    SSL_REQUEST_BYTES,
    Greeting,
    Login,
    after_request,
    begun_by,
    offer,
    read_capabilities,
    read_change_user,
    read_greeting,
    read_login,
    with_capabilities,
)
from sqlcache.mysql.packets import HEADER_BYTES, err_packet, packet
from sqlcache.patience import Patience
from sqlcache.plan.keeper import Witness
from sqlcache.proxy.admission import BROKE_OFF, OTHER, TIMEOUT, Admission, Seat
from sqlcache.proxy.authentication import (
    MAX_LOGIN_PACKET_BYTES,
    Authentication,
    LoginRefused,
    NotRelayed,
    error_code,
)
from sqlcache.sql import user_names
from sqlcache.tls import ClientTls, UpstreamTls
from sqlcache.upstream_errors import UpstreamErrors

log = logging.getLogger(__name__)

_ERR = 0xFF
_OF_THE_SERVER = (ER_CON_COUNT_ERROR, ER_HOST_IS_BLOCKED, ER_HOST_NOT_PRIVILEGED)
_FIRST_WORD_S = 8.0  # MySQL waits `connect_timeout`, 10 s, and takes silence for an error


class LoginRelay:
    """The logins of one client's connection to its own connection to MySQL.

    `barred`: users that MySQL would let in without a password, because it is this process that
    connects. Only this process's own clients may be they. `admission` None: they are not limited.
    `witness`: see `Keeper.witness`. `tracks`: MySQL is to tell of the session's commits, whether or
    not its client asks for that.
    """

    def __init__(
        self,
        client: Channel,
        upstream: Channel,
        client_tls: ClientTls,
        upstream_tls: UpstreamTls,
        barred: Collection[bytes],
        admission: Admission | None,
        errors: UpstreamErrors,
        witness: Witness,
        *,
        tracks: bool = False,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._client_tls = client_tls
        self._upstream_tls = upstream_tls
        self._barred = () if client_tls.inside else barred
        self._seat = Seat(admission, client)
        self._errors = errors
        self.witness = witness
        self._authentication: Authentication | None = None
        self.called_off = False
        """Whether it is sqlcache that ends a login under way, as when it drains."""
        self._tracks = tracks
        self._added = 0  # to the client's capabilities
        self._greeting = b""  # as it came
        self._answered = False
        self._succeeded = False
        self.connection = 0
        """The number of the connection to MySQL, once that has greeted."""

    @property
    def broke_off(self) -> bool:
        """Whether the server greeted the client, and then did not let it in."""
        return bool(self._greeting) and not self._succeeded

    @property
    def is_unanswered(self) -> bool:
        """Whether the client has said no word to the server yet."""
        return not self._answered

    @property
    def next_id(self) -> int:
        """The sequence id of what is said to the client next, in a login or first to a command."""
        return 0 if self._authentication is None else self._authentication.next_id

    def unanswered(self) -> Channel | None:
        """The connection to the server, as it was when that had greeted, if it is unanswered."""
        if self._answered:
            return None
        self._upstream.unread(self._greeting)
        return self._upstream

    def log_in(self, within_s: float) -> Awaitable[tuple[Login, bytes]]:
        """Takes both sides from the greeting to the OK packet that ends the login.

        Returns what the client said and that packet, which is relayed too.

        Raises: LoginRefused; NotRelayed; ConnectionLost; ProtocolError; TimeoutError.
        """
        return self._within(within_s, self._log_in())

    async def _log_in(self) -> tuple[Login, bytes]:
        greeting = await self._relay_greeting()
        authentication = Authentication(self._client, self._upstream, greeting.nonce)
        self._authentication = authentication
        with Patience(_FIRST_WORD_S):
            first, answer = await self._read_answer(authentication)
        self._added = self._not_asked_for(greeting, first)
        self._upstream.hides_tracking = bool(self._added)
        asks_for_tls = answer is not first
        inside = self._client_tls.inside
        as_client = asks_for_tls or (inside and not self._upstream_tls.by_socket)
        secured = await self._start_upstream_tls(greeting, first, answer, as_client)
        payload = _payload(answer, greeting, self._added, secured=secured)
        login = after_request(read_login(payload), first[HEADER_BYTES:])
        if self._added:
            login = login._replace(capabilities=login.capabilities & ~self._added)
        self._seat.asks = login
        self._refuse_barred(login, answer)
        algorithm = self._algorithm(greeting, answer)
        authentication.client_is_secure = asks_for_tls or inside
        authentication.server_is_secure = secured or self._upstream_tls.by_socket
        authentication.server_speaks_tls = secured
        authentication.refuse_clear_text(login.plugin, answer[3] + 1)
        shift = asks_for_tls - secured
        self._answered = True
        self._upstream.write(packet(answer[3] - shift, payload))
        ok = await authentication.relay(login.plugin, shift, self._admit)
        if algorithm is not None:
            compress(self._client, algorithm, self._upstream.buffer_bytes)
        return login, ok

    def change_user(
        self, data: bytes, before: Login, within_s: float
    ) -> Awaitable[tuple[Login, bytes]]:
        """The same for a COM_CHANGE_USER, `data`; what it leaves out stays as it was `before`.

        Raises: LoginRefused; NotRelayed; ConnectionLost; TimeoutError; ProtocolError.
        """
        return self._within(within_s, self._change_user(data, before))

    async def _change_user(self, data: bytes, before: Login) -> tuple[Login, bytes]:
        assert self._authentication is not None
        login = read_change_user(data[HEADER_BYTES:], before)
        self._seat.asks = login
        self._refuse_barred(login, data)
        self._authentication.refuse_clear_text(login.plugin, data[3] + 1)
        self._upstream.write(data)
        return login, await self._authentication.relay(login.plugin, 0, self._admit)

    async def _within(
        self, seconds: float, login: Awaitable[tuple[Login, bytes]]
    ) -> tuple[Login, bytes]:
        """One that fails, or takes longer, is counted, and logged."""
        try:
            with Patience(seconds):
                return await login
        except (ConnectionLost, ProtocolError, TimeoutError) as error:
            if not self.called_off:
                self._failed(error)
            raise

    def _failed(self, error: Exception) -> None:
        authentication = self._authentication
        by_client = authentication is not None and authentication.client_broke_off
        code = OTHER
        if isinstance(error, LoginRefused | NotRelayed):
            code = str(error.code)
        elif isinstance(error, TimeoutError):
            code = TIMEOUT
        elif isinstance(error, ConnectionLost) and (by_client or self._client.closed):
            code = BROKE_OFF
        elif isinstance(error, ConnectionLost):
            self._errors.lost()
        if isinstance(error, LoginRefused) and error.code in _OF_THE_SERVER:
            self._errors.refused(error.code)
        self._seat.failed(code)

    def _admit(self, sequence: int) -> None:
        """MySQL lets in who asks. Raises: NotRelayed where the user has as many sessions as it
        may."""
        self._succeeded = True
        if not self._seat.take():
            user = self._seat.asks.user if self._seat.asks is not None else b""
            why = f"User {user.decode('utf-8', 'replace')} {_TOO_MANY_OF_USER}"
            self._client.write(err_packet(sequence, ER_TOO_MANY_USER_CONNECTIONS, why, "42000"))
            raise NotRelayed(why, ER_TOO_MANY_USER_CONNECTIONS)

    def leave(self) -> None:
        """The session has ended."""
        self._seat.leave()

    async def _relay_greeting(self) -> Greeting:
        first = await self._upstream.read_packet(MAX_LOGIN_PACKET_BYTES)
        payload = first[HEADER_BYTES:]
        if payload[:1] == bytes((_ERR,)):  # as for a host that may not connect at all
            self._client.write(first)
            raise LoginRefused("the server refuses the connection", error_code(first))
        greeting = read_greeting(payload)
        self._greeting = first
        self.connection = greeting.thread_id
        tls = self._client_tls.context is not None
        self._client.write(packet(first[3], offer(payload, greeting, tls=tls)))
        return greeting

    async def _read_answer(self, authentication: Authentication) -> tuple[bytes, bytes]:
        """The client's first packet, and its handshake response, which is the same or, where it
        asked for TLS, came after that."""
        first = await authentication.read_packet()
        if len(first) == HEADER_BYTES + SSL_REQUEST_BYTES:
            await self._start_client_tls(first)
            answer = await authentication.read_packet()
            return first, packet(answer[3], begun_by(first[HEADER_BYTES:], answer[HEADER_BYTES:]))
        if self._client_tls.required:
            self._refuse(first, ER_SECURE_TRANSPORT_REQUIRED, _TLS_REQUIRED)
        return first, first

    async def _start_client_tls(self, request: bytes) -> None:
        """TLS with the client, which asks for it."""
        context = self._client_tls.context
        if context is None or not read_capabilities(request[HEADER_BYTES:]) & Capability.SSL:
            raise ProtocolError("the client asks for TLS, which was not offered")
        await self._client.start_tls(context, server_side=True)

    async def _start_upstream_tls(
        self, greeting: Greeting, first: bytes, answer: bytes, client_has_it: bool
    ) -> bool:
        """TLS with the server, as its mode says; whether it is spoken from here on.

        The server takes the client's capabilities from the request for TLS, which is `first` or,
        where the client has not sent one, the beginning of its answer.
        """
        tls = self._upstream_tls
        if not tls.wanted(client_has_it=client_has_it):
            return False
        if not greeting.capabilities & Capability.SSL:
            if tls.required:
                self._fail(answer, "the server does not offer it")
            return False
        request = _payload(first, greeting, self._added, secured=True)[:SSL_REQUEST_BYTES]
        self._answered = True
        self._upstream.write(packet(1, request))
        try:
            await self._upstream.start_tls(
                tls.context, server_side=False, server_hostname=tls.server_hostname
            )
        except (ProtocolError, ConnectionLost) as error:
            if isinstance(error, ConnectionLost) and self._client.closed:  # and so is this one
                raise
            self._fail(answer, str(error))
        return True

    def _not_asked_for(self, greeting: Greeting, first: bytes) -> int:
        """The capabilities that the server is to have, and the client knows nothing of."""
        if not self._tracks:
            return 0
        asked = read_capabilities(first[HEADER_BYTES:])
        return Capability.SESSION_TRACK & greeting.capabilities & ~asked

    def _algorithm(self, greeting: Greeting, answer: bytes) -> Algorithm | None:
        """By which the client compresses what follows the login. Raises: NotRelayed where it was
        not offered to, for its frames are no commands; or by that level."""
        claimed = read_capabilities(answer[HEADER_BYTES:])
        try:
            return agreed(claimed, greeting.capabilities & OFFERED, answer[-1])
        except WrongLevel:
            self._refuse(answer, ER_WRONG_COMPRESSION_LEVEL_CLIENT, _WRONG_LEVEL)
        except NotOffered:
            self._refuse(answer, ER_WRONG_COMPRESSION_ALGORITHM_CLIENT, _NOT_OFFERED)

    def _refuse_barred(self, login: Login, answer: bytes) -> None:
        if any(user_names.may_be_read_as(login.user, name) for name in self._barred):
            name = login.user.decode("utf-8", "replace")
            why = f"Access denied for user '{name}': by its socket MySQL would ask no password"
            self._refuse(answer, ER_ACCESS_DENIED_NO_PASSWORD, why, "28000")

    def _fail(self, answer: bytes, why: str) -> NoReturn:
        log.warning("no TLS with MySQL error=%s", why)
        self._refuse(answer, CR_SSL_CONNECTION_ERROR, f"sqlcache has no TLS with MySQL: {why}")

    def _refuse(self, answer: bytes, code: int, why: str, state: str = "HY000") -> NoReturn:
        self._client.write(err_packet(answer[3] + 1, code, why, state))
        raise NotRelayed(why, code)


_TOO_MANY_OF_USER = (
    "already has more than 'max_user_connections' active connections"  # MySQL's words
)
_NOT_OFFERED = "The client compresses in a way that it was not offered"
_WRONG_LEVEL = "Invalid zstd compression level for algorithm 'zstd'."  # MySQL's words
_TLS_REQUIRED = (  # MySQL's words
    "Connections using insecure transport are prohibited while --require_secure_transport=ON."
)


def _payload(answer: bytes, greeting: Greeting, added: int, *, secured: bool) -> bytes:
    """A handshake response as the server is to see it: with what both sides can do, as the server
    takes it, and sqlcache can follow; and with what is `added`."""
    added |= Capability.SSL if secured else 0
    common = (greeting.capabilities | Capability.LONG_PASSWORD) & FOLLOWED & ~Capability.SSL
    return with_capabilities(answer[HEADER_BYTES:], added, common)
