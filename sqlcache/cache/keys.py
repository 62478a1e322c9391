"""Names in memcached: entries, leases and tags.

Every key is the deployment's prefix, one letter for what it is, and a 128-bit digest, so any
identifier fits memcached's rules (250 bytes, no spaces) and no one can construct two statements
with one key. Fields are length-prefixed before they are hashed: no two lists of fields run
together into the same bytes.
"""

import base64
import hashlib
from collections.abc import Iterable

DIGEST_BYTES = 16


def digest(fields: Iterable[bytes]) -> bytes:
    """128 bits that tell this list of fields from any other."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for field in fields:
        state.update(len(field).to_bytes(8, "little"))
        state.update(field)
    return state.digest()


class Keyspace:
    """The keys of one deployment: two with different prefixes share nodes but nothing else."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def entry(self, fingerprint: bytes, canonical: bytes) -> bytes:
        """The key of an answer: all that decides it, but the tables' contents."""
        return self._key(b"e", digest((fingerprint, canonical)))

    def lease(self, entry_key: bytes, versions: bytes) -> bytes:
        """The key of the right to fill `entry_key` at these tag versions."""
        return self._key(b"l", digest((entry_key, versions)))

    def tag(self, schema: str, table: str) -> bytes:
        """The key of a tag's log; a schema's has no table, the root has neither."""
        return self._key(b"t", digest((schema.encode(), table.encode())))

    def _key(self, kind: bytes, value: bytes) -> bytes:
        name = base64.urlsafe_b64encode(value).rstrip(b"=")
        return b"%s:%s:%s" % (self._prefix, kind, name)
