"""Seals: what this deployment has stored, told from what others have put into memcached.

Who can write to memcached could answer apps what he likes. With a secret, each item of an entry
ends with a MAC of its key and its value, keyed BLAKE2b, and one whose seal is broken is as good as
none.

The logs of tags have no seal. It would hold nobody back: who can write can read as well, and put an
old log back in place of a new one, sealed or not. So he may bring back answers that were right
once, never others.
"""

import hashlib
import logging
from hmac import compare_digest
from time import monotonic
from typing import Final

from sqlcache.metrics import Metrics

log = logging.getLogger(__name__)

SEAL_BYTES: Final = 16
_NAME_BYTES: Final = 8
_SAID_EVERY_S: Final = 60.0


class Seal:
    """That of those who know the secret; without one, items are stored as they are."""

    def __init__(self, metrics: Metrics, secret: str | None = None) -> None:
        self._metrics = metrics
        self._said_at = float("-inf")
        self._begun: hashlib.blake2b | None = None
        self.size_bytes = 0
        """What it adds to an item."""
        self.name = b""
        """Tells secrets apart without telling them: entries of different ones have different keys,
        so that proxies may be given another one after the other."""
        if secret is not None:
            key = hashlib.blake2b(secret.encode(), person=b"sqlcache seals").digest()
            self._begun = hashlib.blake2b(key=key, digest_size=SEAL_BYTES)
            self.size_bytes = SEAL_BYTES
            self.name = hashlib.blake2b(key, digest_size=_NAME_BYTES).digest()

    def sealed(self, key: bytes, value: bytes) -> bytes:
        """What is stored under this key."""
        return value if self._begun is None else value + self._mac(self._begun, key, value)

    def opened(self, key: bytes, item: bytes) -> bytes | None:
        """The value of an item that was found under this key; None if the seal is broken."""
        if self._begun is None:
            return item
        value = item[:-SEAL_BYTES]
        if compare_digest(item[-SEAL_BYTES:], self._mac(self._begun, key, value)):
            return value
        self._metrics.seals_broken += 1
        now = monotonic()
        if now - self._said_at >= _SAID_EVERY_S:
            self._said_at = now
            log.error("an entry in memcached was changed by somebody without the secret")
        return None

    @staticmethod
    def _mac(begun: hashlib.blake2b, key: bytes, value: bytes) -> bytes:
        state = begun.copy()
        state.update(b"%d " % len(key) + key)
        state.update(value)
        return state.digest()
