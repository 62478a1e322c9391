"""The packets of a login between its first answer and its end, relayed both ways.

MySQL itself checks the password. What a client sends depends on whether its connection is secure,
and what the server expects on whether the server's is; both are as the same only where both sides
speak TLS, or neither. Where they differ:

- A password that a client sends in clear text, because its side is secure, is never sent on over a
  side that is not: of `caching_sha2_password` it is encrypted with the server's public key, as a
  client without TLS would do; of other plugins that send clear text the login is refused.
- A client whose side is not secure asks for a public key, which a server whose side is secure would
  take for the password. Then it gets one of sqlcache's own, and the server gets the password.

So sqlcache does see such a password, as whoever ends TLS does. It keeps none.

Source: MySQL's caching_sha2_password: 01 04 asks for the password itself, which comes with a NUL
behind it; 02 asks for the public key, which comes as 01 and PEM; the password is XORed with the
nonce, and encrypted by RSA with OAEP and SHA-1. Its sha256_password: the same, but that it asks for
the password at once, and 01 for the public key, for which a server waits on a socket as well.
"""

import asyncio
import functools
from collections.abc import Callable
from itertools import cycle
from typing import Final, NoReturn

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from sqlcache.errors import ConnectionLost, ProtocolError
from sqlcache.mysql.connection import Channel
from sqlcache.mysql.constants import ER_ACCESS_DENIED, ER_SECURE_TRANSPORT_REQUIRED
from sqlcache.mysql.packets import HEADER_BYTES, err_packet, packet
from sqlcache.mysql.tracking import untracked

MAX_LOGIN_PACKET_BYTES: Final = 1 << 17  # MySQL takes 64 kB of attributes, plugins as much

_OK, _MORE, _NEXT_FACTOR, _SWITCH, _ERR = 0x00, 0x01, 0x02, 0xFE, 0xFF
_LEAST_OK_BYTES = 7
_CACHING_SHA2, _SHA256 = b"caching_sha2_password", b"sha256_password"
_NO_QUESTIONS = (bytes((_OK,)), bytes((_ERR,)))
_PASSWORD_KNOWN = b"\x01\x03"
_WANTS_PASSWORD = b"\x01\x04"
_WANTS_PUBLIC_KEY = {_CACHING_SHA2: b"\x02", _SHA256: b"\x01"}
_NO_PASSWORD = (b"\x00", b"")
_NONCE_BYTES = 20
_NO_CLEAR_TEXT = frozenset(
    (
        b"",
        b"mysql_native_password",
        b"mysql_old_password",
        _CACHING_SHA2,
        b"client_ed25519",
        b"parsec",
        b"auth_gssapi_client",
        b"authentication_webauthn_client",
        b"authentication_kerberos_client",
        b"authentication_ldap_sasl_client",
    )
)
"""Plugins whose clients send nothing in clear text, less what is done about caching_sha2's."""

_OAEP = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)  # MySQL's own


def _admit_all(sequence: int) -> None:
    """Nobody is one too many."""


class LoginRefused(ConnectionLost):
    """The server said no, by the error `code`; the client has its words."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


class NotRelayed(ConnectionLost):
    """sqlcache itself said no, by the error `code`, and the client has the words. Of a change of
    user the server knows nothing, or waits for more of it, or has made it: the connection cannot go
    on."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


class Authentication:
    """One connection's logins, one after another: its first, and each COM_CHANGE_USER.

    `nonce` is the greeting's. What is secure may be learnt after it was made.
    """

    def __init__(self, client: Channel, upstream: Channel, nonce: bytes) -> None:
        self._client = client
        self._upstream = upstream
        self._nonce = nonce
        self.client_is_secure = False
        self.server_is_secure = False
        self.server_speaks_tls = False
        self._plugin = b""
        self._shift = 0
        self._password_wanted = False
        self._answer_due = False
        self._command_waits = False
        self._answers: asyncio.Task[None] | None = None
        self._password: bytes | None = None  # until the server's public key has come
        self.next_id = 1
        """The sequence id of the next packet for the client, behind the last of a login."""
        self.client_broke_off = False
        """Whether it was for the client that the connection to the server was ended."""

    async def relay(
        self, plugin: bytes, shift: int = 0, admit: Callable[[int], None] = _admit_all
    ) -> bytes:
        """Relays packets until the server ends the login; returns its OK.

        `plugin` is the one the client has answered by. `shift` is how far the client's sequence
        ids are ahead of the server's. `admit` is called before the client is told of the OK, with
        the sequence id it has for the client: what it raises ends the login.

        Raises: LoginRefused; NotRelayed; ConnectionLost; ProtocolError.
        """
        self._plugin, self._shift = plugin, shift
        self._password_wanted = self._answer_due = self._command_waits = False
        self._client.intercept = self._client_speaks
        try:
            if self._client.has_some:
                self._client_speaks()
            while True:
                got = await self._upstream.read_packet(MAX_LOGIN_PACKET_BYTES)
                if self._password is not None and got[HEADER_BYTES : HEADER_BYTES + 1] == b"\1":
                    self._send_encrypted(got)
                    continue
                self._follow(got)
                is_ok = (
                    got[HEADER_BYTES:][:1] == b"\0" and len(got) >= HEADER_BYTES + _LEAST_OK_BYTES
                )
                if is_ok:
                    got = untracked(got) if self._upstream.hides_tracking else got
                    admit(got[3] + self._shift & 0xFF)
                self._client.write(_shifted(got, self._shift))
                self.next_id = got[3] + self._shift + 1
                if self._answer_due and self._command_waits:
                    raise _out_of_order()
                is_refusal = got[HEADER_BYTES:][:1] == bytes((_ERR,))
                if is_ok or is_refusal:
                    self.next_id = 1
                if is_refusal:
                    raise LoginRefused("the server refuses the login", error_code(got))
                if is_ok:
                    return got
        finally:
            self._client.intercept = self._password = None
            if self._answers is not None:
                self._answers.cancel()
                self._answers = None

    def _client_speaks(self, _: bytes = b"") -> bool:
        """The client has more to say than the packet that began this login; most have not."""
        if self._answers is None:
            self._answers = asyncio.ensure_future(self._relay_answers())
        return False

    def refuse_clear_text(self, plugin: bytes, sequence: int) -> None:
        """Refuses a plugin by which a password would go over a connection that is not secure.

        `sequence` is the id of the client's next packet. Raises: NotRelayed.
        """
        if self.client_is_secure and not self.server_is_secure and plugin not in _NO_CLEAR_TEXT:
            name = plugin.decode("utf-8", "replace")
            text = f"sqlcache has no TLS to MySQL, and {name} would send a password in clear text"
            self._client.write(err_packet(sequence, ER_SECURE_TRANSPORT_REQUIRED, text, "HY000"))
            raise NotRelayed(text, ER_SECURE_TRANSPORT_REQUIRED)

    def _follow(self, got: bytes) -> None:
        """Takes in what the server says of the plugin."""
        payload = got[HEADER_BYTES:]
        switches = len(payload) > 1 and payload[0] in (_SWITCH, _NEXT_FACTOR)
        if switches:
            plugin, _, nonce = payload[1:].partition(b"\0")
            self.refuse_clear_text(plugin, got[3] + self._shift)
            self._plugin, self._nonce = plugin, nonce[:_NONCE_BYTES]
        self._password_wanted = payload == _WANTS_PASSWORD and self._plugin == _CACHING_SHA2
        asks_at_once = switches and self._plugin == _SHA256
        self._password_wanted |= asks_at_once and (self.server_speaks_tls or self.client_is_secure)
        self._answer_due = payload[:1] not in _NO_QUESTIONS and payload != _PASSWORD_KNOWN

    async def _relay_answers(self) -> None:
        """How many packets a plugin has its client send is its own affair: all are passed on."""
        try:
            while True:
                got = await self._next_answer()
                wanted, takes_it = self._password_wanted, self._takes_clear_text
                if wanted and self.client_is_secure and not takes_it and not _is_empty(got):
                    self._ask_for_public_key(got)
                elif wanted and takes_it and not self.client_is_secure:
                    await self._pass_on_password(got)
                else:
                    self._upstream.write(_shifted(got, -self._shift))
                await self._upstream.drain()  # else all that a client sends on is kept
                if self._client.has_some:  # of many at once: others want a turn
                    await asyncio.sleep(0)
        except (ConnectionLost, ProtocolError):
            self.client_broke_off = True
            self._upstream.abort()

    @property
    def _takes_clear_text(self) -> bool:
        """Whether the server expects a password as it is: sha256_password not by a socket."""
        return self.server_speaks_tls if self._plugin == _SHA256 else self.server_is_secure

    async def _next_answer(self) -> bytes:
        """The client's next packet of this login.

        One with the id 0 is none but a command, which the server would take as soon as the login
        is over: it stays where it is until then. Raises: ConnectionLost; ProtocolError.
        """
        if not (await self._client.peek(HEADER_BYTES))[3]:
            if self._answer_due:
                raise _out_of_order()
            self._command_waits = True
            await asyncio.get_running_loop().create_future()
        got = await self.read_packet()
        if not (got[3] - self._shift) & 0xFF:  # as it would be for the server
            raise _out_of_order()
        self._answer_due = False
        return got

    async def read_packet(self) -> bytes:
        """The client's next packet. Raises: ConnectionLost; ProtocolError."""
        try:
            got = await self._client.read_packet(MAX_LOGIN_PACKET_BYTES)
        except ProtocolError:
            self.next_id = self._client.head(HEADER_BYTES)[3] + 1
            raise
        self.next_id = got[3] + 1
        return got

    def _ask_for_public_key(self, got: bytes) -> None:
        """The client has sent its password: keeps it for the moment until the key comes."""
        self._password_wanted = False
        self._password = got[HEADER_BYTES:]
        self._upstream.write(packet(got[3] - self._shift, _WANTS_PUBLIC_KEY[self._plugin]))

    def _send_encrypted(self, got: bytes) -> None:
        """The server's public key has come: sends the password so that only the server reads it."""
        assert self._password is not None
        try:
            key = serialization.load_pem_public_key(got[HEADER_BYTES + 1 :])
        except ValueError:
            raise ProtocolError("the server's public key cannot be read") from None
        if not isinstance(key, rsa.RSAPublicKey):
            raise ProtocolError("the server's public key is none of RSA")
        try:
            encrypted = key.encrypt(_mixed(self._password, self._nonce), _OAEP)
        except ValueError:
            raise ProtocolError("the password is longer than the server's key") from None
        self._upstream.write(packet(got[3] + 1, encrypted))
        self._password = None
        self._shift -= 2  # the server has seen two packets more

    async def _pass_on_password(self, got: bytes) -> None:
        """The client asks for a public key, or has ours already: the server gets the password."""
        self._password_wanted = False
        if _is_empty(got):
            self._upstream.write(_shifted(got, -self._shift))
            return
        key = await asyncio.to_thread(_private_key)
        if got[HEADER_BYTES:] == _WANTS_PUBLIC_KEY[self._plugin]:
            pem = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            self._client.write(packet(got[3] + 1, b"\x01" + pem))
            self._shift += 2  # the client has seen two packets more
            got = await self._next_answer()
        try:
            password = _mixed(key.decrypt(got[HEADER_BYTES:], _OAEP), self._nonce)
        except ValueError:
            self._refuse(got, "with TLS to MySQL, sqlcache takes passwords by a key of its own")
        self._upstream.write(packet(got[3] - self._shift, password))

    def _refuse(self, got: bytes, why: str) -> NoReturn:
        self._client.write(err_packet(got[3] + 1, ER_ACCESS_DENIED, why, "28000"))
        raise NotRelayed(why, ER_ACCESS_DENIED)


def _is_empty(got: bytes) -> bool:
    """Whether this is a password of no characters, as it is sent."""
    return got[HEADER_BYTES:] in _NO_PASSWORD


def error_code(data: bytes) -> int:
    """Of an ERR packet; 0 where it is cut short."""
    return int.from_bytes(data[HEADER_BYTES + 1 : HEADER_BYTES + 3], "little")


def _out_of_order() -> ProtocolError:
    return ProtocolError("a packet of the login is out of order")


def _mixed(password: bytes, nonce: bytes) -> bytes:
    if not nonce:
        raise ProtocolError("the server gave no nonce")
    return bytes(a ^ b for a, b in zip(password, cycle(nonce), strict=False))


@functools.cache
def _private_key() -> rsa.RSAPrivateKey:
    """This process's own, made when it is first needed."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _shifted(data: bytes, shift: int) -> bytes:
    return data[:3] + bytes((data[3] + shift & 0xFF,)) + data[4:] if shift else data
