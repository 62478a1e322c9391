"""A client's TLS 1.3 records, also those that the `ssl` module never makes: changes of its keys."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CIPHER = "TLS_AES_256_GCM_SHA384"
_HANDSHAKE, _DATA = 22, 23


class Records:
    """What a client sends after its greeting, of which the `keylog_filename` has the secret.

    The cipher of the session must be `CIPHER`, and the client itself has sent nothing yet.
    """

    def __init__(self, keys: Path) -> None:
        lines = [line.split() for line in keys.read_text().splitlines()]
        (secret,) = (words[2] for words in lines if words[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._begin(bytes.fromhex(secret))

    def data(self, data: bytes) -> bytes:
        """One record of data."""
        return self._record(_DATA, data)

    def key_update(self, *, asks: bool) -> bytes:
        """One record: the next has other keys. `asks`: so shall the peer's be."""
        record = self._record(_HANDSHAKE, b"\x18\0\0\1" + bytes((asks,)))
        self._begin(self._expanded("traffic upd", 48))
        return record

    def _begin(self, secret: bytes) -> None:
        self._secret, self._sent = secret, 0
        self._cipher = AESGCM(self._expanded("key", 32))
        self._nonce = int.from_bytes(self._expanded("iv", 12), "big")

    def _record(self, kind: int, body: bytes) -> bytes:
        header = b"\x17\3\3" + (len(body) + 17).to_bytes(2, "big")
        nonce = (self._nonce ^ self._sent).to_bytes(12, "big")
        self._sent += 1
        return header + self._cipher.encrypt(nonce, body + bytes((kind,)), header)

    def _expanded(self, label: str, size: int) -> bytes:
        """HKDF-Expand-Label, see RFC 8446, 7.1, of no more than one block."""
        named = b"tls13 " + label.encode()
        info = size.to_bytes(2, "big") + bytes((len(named),)) + named + b"\0"
        return hmac.digest(self._secret, info + b"\1", hashlib.sha384().name)[:size]
