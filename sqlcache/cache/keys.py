"""Names in memcached: entries, leases and tags.

Every key is the deployment's prefix, one letter for what it is, the format of all there is, and a
128-bit digest, so any identifier fits memcached's rules (250 bytes, no spaces) and no one can
construct two statements with one key. Fields are length-prefixed before they are hashed: no two
lists of fields run together into the same bytes.

Processes of another `FORMAT` find nothing of this one's, but the roster: by that they know each
other.
"""

import hashlib
from binascii import b2a_base64
from collections.abc import Iterable

from sqlcache.memcache.protocol import checked_key

FORMAT = 5
"""How tags' logs and entries are written; another one where an older process would misread them."""
DIGEST_BYTES = 16
_COMMIT_BYTES = 8
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def digest(fields: Iterable[bytes]) -> bytes:
    """128 bits that tell this list of fields from any other."""
    return _hashed(fields).digest()


def shortened(text: bytes, most_bytes: int) -> bytes:
    """A text, or in so many bytes what is as good as it."""
    if len(text) <= most_bytes:
        return text
    mark = digest([text]).hex().encode()
    return text[: most_bytes - len(mark) - 1] + b" " + mark


def commit_id(reading: bytes, gtid: bytes) -> bytes:
    """What tells a commit from others in tags' logs, for one reading of the binary log."""
    return digest((reading, gtid))[:_COMMIT_BYTES]


def _hashed(fields: Iterable[bytes]) -> hashlib.blake2b:
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for field in fields:
        state.update(len(field).to_bytes(8, "little"))
        state.update(field)
    return state


class EntryKeys:
    """The keys of answers that differ in one field: all that is alike is hashed once."""

    __slots__ = ("_begins", "_state")

    def __init__(self, begins: bytes, fields: Iterable[bytes]) -> None:
        self._begins = begins
        self._state = _hashed(fields)

    def of(self, field: bytes) -> bytes:
        """The key of the answer with this as its last field."""
        state = self._state.copy()
        state.update(len(field).to_bytes(8, "little") + field)
        return self._begins + _named(state.digest())


class Keyspace:
    """The keys of one deployment: two with different prefixes share nodes but nothing else."""

    __slots__ = ("_prefix", "_seal")

    def __init__(self, prefix: str, seal: bytes = b"") -> None:
        """`seal` is the name of that of the entries, see `cache.seals`. Raises: ValueError for a
        prefix that memcached would not take in a key."""
        self._prefix = prefix.encode()
        checked_key(self._key(b"e", bytes(DIGEST_BYTES)))  # no other is longer, or has other bytes
        self._seal = (seal,) if seal else ()

    def entry(self, fingerprint: bytes, canonical: bytes, ttl_s: int) -> bytes:
        """The key of an answer that lives so long: all that decides it but the tables' contents."""
        return self._key(b"e", digest((*self._seal, fingerprint, canonical, b"%d" % ttl_s)))

    def entries(self, fingerprint: bytes, fields: Iterable[bytes], ttl_s: int) -> EntryKeys:
        """The keys of answers that live so long, but for the last field that decides each."""
        alike = (*self._seal, fingerprint, *fields, b"%d" % ttl_s)
        return EntryKeys(self._begins(b"e"), alike)

    def lease(self, entry_key: bytes, versions: bytes) -> bytes:
        """The key of the right to fill `entry_key` at these tag versions."""
        return self._key(b"l", digest((entry_key, versions)))

    def tag(self, schema: str, table: str) -> bytes:
        """The key of a table's tag."""
        return self._key(b"t", digest((schema.encode(), table.encode())))

    def bucket(self, schema: str, table: str, slot: bytes, bucket: bytes, salt: int) -> bytes:
        """A key for a bucket of a table's slot; some `salt` makes it live where the tag does."""
        told = schema.encode(), table.encode(), slot, bucket, b"%d" % salt
        return self._key(b"k", digest(told))

    def copy(self, schema: str, node: str, salt: int) -> bytes:
        """A key for the copy on a node of a schema's tag, or of the root's; some `salt` makes it
        live there."""
        return self._key(b"n", digest((schema.encode(), node.encode(), b"%d" % salt)))

    def memento(self, node_key: bytes) -> bytes:
        """The key of a node's memento; to be sent where its tag, `node_key`, lives."""
        return self._key(b"h", digest((node_key,)))

    def membership(self, node_key: bytes) -> bytes:
        """The key of the ids of the proxies that watch over a node, likewise."""
        return self._key(b"c", digest((node_key,)))

    def hold(self, node_key: bytes) -> bytes:
        """The key that tells of a node's quarantine, likewise."""
        return self._key(b"q", digest((node_key,)))

    def roll(self, node_key: bytes) -> bytes:
        """The key of the questions whether anybody owes the node a bump, likewise."""
        return self._key(b"a", digest((node_key,)))

    def answers(self, node_key: bytes, question: bytes) -> bytes:
        """The key of the ids of those who do not, likewise."""
        return self._key(b"a", digest((node_key, question)))

    def roster(self, *, lapses: bool) -> bytes:
        """The key of a digest of all nodes, the same on each and for all formats; see `Roster`."""
        return b"%s:m:%s" % (self._prefix, _named(digest((b"at work" if lapses else b"last",))))

    def binlog(self, *, turn: bool) -> bytes:
        """The key of whose turn it is to follow the binary log, or of where the last one was; the
        same on each node."""
        return self._key(b"b", digest((b"turn" if turn else b"place",)))

    def unlogged(self) -> bytes:
        """The key of a mark that not all writes may be in the binary log; the same on each node."""
        return self._key(b"b", digest((b"unlogged",)))

    def part(self, entry_key: bytes, fill_id: bytes, number: int) -> bytes:
        """The key of one part of an entry that one item cannot hold."""
        return self._key(b"p", digest((entry_key, fill_id, b"%d" % number)))

    def server(self, data_set: str) -> bytes:
        """The key of which server had a set of data last; the same on each node."""
        return self._key(b"s", digest((data_set.encode(),)))

    def recorded(self, schema: str, table: str) -> bytes:
        """The key of the list, for people, of what hangs on a table."""
        return self._key(b"r", digest((schema.encode(), table.encode())))

    def _key(self, kind: bytes, value: bytes) -> bytes:
        return self._begins(kind) + _named(value)

    def _begins(self, kind: bytes) -> bytes:
        return b"%s:%s%d:" % (self._prefix, kind, FORMAT)


def _named(value: bytes) -> bytes:
    return b2a_base64(value, newline=False).rstrip(b"=").translate(_URL_SAFE)
