"""A memcached node inside this process: the same bytes in, the same replies out.

Laws:

- `ItemStore` answers each request exactly as memcached does; a differential test against the real
  one holds it to that. Where versions differ it follows the newer one.
- Time is whole seconds, as in memcached: an item stored for one second may be gone at once.
- The items never take more than `max_bytes`: the least recently used ones go first, of those with a
  TTL. What was stored without one lasts, as long as such items take half of it at most: however
  many answers come and go, what tells that they are right stays.

Source: memcached's doc/protocol.txt, "Meta Commands", and memcached 1.6.18 where it is silent.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlcache.errors import ProtocolError
from sqlcache.memcache.connection import Done, answer, request
from sqlcache.memcache.protocol import MAX_KEY_BYTES, MAX_TTL_S, Reply

logger = logging.getLogger(__name__)

_HEADER_BYTES: Final = 59
"""What memcached adds to key and value when it holds an item against its size limit."""

_CLIENT_FLAGS_BYTES: Final = 4
"""What client flags other than 0 add to that."""

_OBJECT_BYTES: Final = 400
"""What an item costs Python besides the bytes of its key and value."""

_MAX_OPAQUE_BYTES: Final = 31

_KNOWN_FLAGS: Final = {
    b"mg": frozenset((b"c", b"f", b"h", b"k", b"N", b"O", b"R", b"s", b"T", b"t", b"v")),
    b"ms": frozenset((b"C", b"c", b"F", b"I", b"k", b"M", b"N", b"O", b"T")),
    b"md": frozenset((b"C", b"I", b"k", b"O", b"T")),
}

_NUMERIC_FLAGS: Final = frozenset((b"C", b"F", b"N", b"R", b"T"))


@dataclass(slots=True)
class _Item:
    value: bytes
    client_flags: int
    expires_at_s: int
    """On the store's clock; 0 for never, -1 for already."""
    cas: int = 0
    stale: bool = False
    won: bool = False
    """Whether some client has been told to make the item anew."""
    fetched: bool = False


class ItemStore:
    """Items by key, and what meta commands do to them; no I/O.

    `max_bytes` bounds what the items take in this process; an item of more than `max_item_bytes`,
    counted as memcached counts it, is refused. `clock` gives seconds from any start.
    """

    __slots__ = ("_cas", "_clock", "_fleeting", "_lasting", "_lasting_bytes", "_max_bytes",
                 "_max_item_bytes", "evictions", "used_bytes")  # fmt: skip

    def __init__(
        self,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        max_item_bytes: int = 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.used_bytes = 0
        self.evictions = 0
        self._max_bytes = max_bytes
        self._max_item_bytes = max_item_bytes
        self._clock = clock
        self._cas = 0
        # With a TTL, and without; the least recently used item first.
        self._fleeting: OrderedDict[bytes, _Item] = OrderedDict()
        self._lasting: OrderedDict[bytes, _Item] = OrderedDict()
        self._lasting_bytes = 0

    def __len__(self) -> int:
        """How many items are held, expired ones that nobody has asked for since among them."""
        return len(self._fleeting) + len(self._lasting)

    def figures(self) -> dict[str, int]:
        """What it has to say of itself, by memcached's names."""
        return {
            "curr_items": len(self),
            "bytes": self.used_bytes,
            "limit_maxbytes": self._max_bytes,
            "evictions": self.evictions,
        }

    def execute(self, payload: bytes) -> list[Reply]:
        """Carry out the requests in `payload`, in order.

        Raises: ProtocolError where memcached answers ERROR or CLIENT_ERROR; the requests before
        that one have been carried out.
        """
        replies: list[Reply] = []
        at = 0
        while at < len(payload):
            end = payload.find(b"\r\n", at)
            if end < 0:
                raise ProtocolError(f"a request without an end: {payload[at : at + 80]!r}")
            line = payload[at:end]
            words = line.split()
            at = end + 2
            match words:
                case [b"mn", *_]:
                    replies.append((b"MN", None, b""))
                case [b"mg", key, *flags]:
                    replies.append(self._get(key, _Flags(b"mg", key, flags)))
                case [b"md", key, *flags]:
                    replies.append(self._delete(key, _Flags(b"md", key, flags)))
                case [b"ms", key, size, *flags] if size.isdigit():
                    value_end = at + int(size)
                    if payload[value_end : value_end + 2] != b"\r\n":
                        raise ProtocolError(f"bad data chunk for {key!r}")
                    value = payload[at:value_end]
                    at = value_end + 2
                    replies.append(self._set(key, value, _Flags(b"ms", key, flags)))
                case _:
                    raise ProtocolError(f"bad command line format: {line[:80]!r}")
        return replies

    def _get(self, key: bytes, flags: "_Flags") -> Reply:
        item = self._find(key)
        won = False
        if item is None:
            if b"N" not in flags.tokens:
                return b"EN", None, flags.echo()
            item = _Item(b"", 0, 0)
            self._put(key, item)
            won = True
        else:
            self._like(item).move_to_end(key)
        created = won
        returned: list[bytes] = []
        for letter, token in flags.tokens.items():
            match letter:
                case b"T":
                    self._touch(key, item, int(token))
                case b"N" if created:
                    self._touch(key, item, int(token))
                case b"R" if not created and not item.won and item.expires_at_s:
                    won |= item.expires_at_s - self._now_s() < int(token)
                case b"k" | b"O":
                    returned.append(letter + (token if letter == b"O" else key))
                case b"c" | b"f" | b"h" | b"s" | b"t":
                    returned.append(b"%b%d" % (letter, self._number_of(item, letter)))
        item.fetched = True
        if item.won:
            returned.append(b"Z")
        if item.stale:
            returned.append(b"X")
            won |= not item.won
        if won:
            returned.append(b"W")
            item.won = True
        if b"v" in flags.tokens:
            return b"VA", item.value, b" ".join(returned)
        return b"HD", None, b" ".join(returned)

    def _number_of(self, item: _Item, letter: bytes) -> int:
        if letter == b"t":
            return item.expires_at_s - self._now_s() if item.expires_at_s else -1
        if letter == b"h":
            return int(item.fetched)
        return {b"c": item.cas, b"f": item.client_flags, b"s": len(item.value)}[letter]

    def _set(self, key: bytes, value: bytes, flags: "_Flags") -> Reply:
        item = _Item(value, flags.number(b"F"), self._expiry(flags.number(b"T")))
        if self._too_large(key, item):
            # memcached would rather lose the old item than let it pass for the refused one.
            self._drop(key)
            return b"SE", None, b"object too large for cache"
        status = self._store(key, item, self._find(key), flags)
        if status == b"HD":
            self._put(key, item)
        return status, None, flags.echo(cas=item.cas)

    def _store(self, key: bytes, item: _Item, old: _Item | None, flags: "_Flags") -> bytes:
        """Decide whether `item` may take the place of `old`, and make it ready for it."""
        mode = flags.tokens.get(b"M", b"S")
        match mode:
            case b"E":
                if old is not None:
                    self._like(old).move_to_end(key)
                    return b"NS"
                return b"HD"
            case b"A" | b"P":
                return self._join(key, item, old, flags)
            case b"R" if old is None and b"C" not in flags.tokens:
                return b"NS"
            case b"S" | b"R":
                return _compare(item, old, flags)
            case _:
                raise ProtocolError(f"invalid mode for ms M token: {mode!r}")

    def _join(self, key: bytes, item: _Item, old: _Item | None, flags: "_Flags") -> bytes:
        """Make `item` the old item with its own value put at the end (A) or the start (P)."""
        if old is None:
            if b"N" not in flags.tokens:
                return b"NS"
            item.expires_at_s = self._expiry(flags.number(b"N"))
            return b"HD"
        # A CAS of 0 is none to append and prepend.
        if flags.number(b"C") not in (0, old.cas):
            return b"EX"
        after = flags.tokens[b"M"] == b"A"
        item.value = old.value + item.value if after else item.value + old.value
        item.client_flags, item.expires_at_s = old.client_flags, old.expires_at_s
        return b"NS" if self._too_large(key, item) else b"HD"

    def _delete(self, key: bytes, flags: "_Flags") -> Reply:
        item = self._find(key)
        if item is None:
            return b"NF", None, flags.echo()
        if b"C" in flags.tokens and flags.number(b"C") != item.cas:
            return b"EX", None, flags.echo()
        if b"I" not in flags.tokens:
            self._drop(key)
            return b"HD", None, flags.echo()
        if b"T" in flags.tokens:
            self._touch(key, item, flags.number(b"T"))
        item.stale, item.won = True, False
        item.cas = self._next_cas()
        return b"HD", None, flags.echo()

    def _find(self, key: bytes) -> _Item | None:
        item = self._fleeting.get(key) or self._lasting.get(key)
        if item is not None and item.expires_at_s and item.expires_at_s <= self._now_s():
            self._drop(key)
            return None
        return item

    def _put(self, key: bytes, item: _Item) -> None:
        """Hold `item` under `key` in place of any other, and let old items go to make room."""
        self._drop(key)
        item.cas = self._next_cas()
        self._hold(key, item)
        while self.used_bytes > self._max_bytes and len(self) > 1:
            first, second = self._fleeting, self._lasting
            if self._lasting_bytes > self._max_bytes // 2:
                first, second = second, first
            oldest = next(iter(first), key)
            self._drop(next(iter(second)) if oldest == key else oldest)
            self.evictions += 1

    def _touch(self, key: bytes, item: _Item, ttl_s: int) -> None:
        """Have `item`, which is held under `key`, live so long from now."""
        self._drop(key)
        item.expires_at_s = self._expiry(ttl_s)
        self._hold(key, item)

    def _hold(self, key: bytes, item: _Item) -> None:
        self._like(item)[key] = item
        self._count(item, _footprint(key, item))

    def _drop(self, key: bytes) -> None:
        item = self._fleeting.pop(key, None) or self._lasting.pop(key, None)
        if item is not None:
            self._count(item, -_footprint(key, item))

    def _like(self, item: _Item) -> OrderedDict[bytes, _Item]:
        """The items that go in turn with this one."""
        return self._fleeting if item.expires_at_s else self._lasting

    def _count(self, item: _Item, more_bytes: int) -> None:
        self.used_bytes += more_bytes
        if not item.expires_at_s:
            self._lasting_bytes += more_bytes

    def _next_cas(self) -> int:
        self._cas += 1
        return self._cas

    def _too_large(self, key: bytes, item: _Item) -> bool:
        size = _HEADER_BYTES + len(key) + len(item.value)
        if item.client_flags:
            size += _CLIENT_FLAGS_BYTES
        return size > self._max_item_bytes or _footprint(key, item) > self._max_bytes

    def _now_s(self) -> int:
        return int(self._clock())

    def _expiry(self, ttl_s: int) -> int:
        """When an item with this TTL expires: at once if it is negative or a date, over 30 days."""
        if ttl_s == 0:
            return 0
        return self._now_s() + ttl_s if 0 < ttl_s <= MAX_TTL_S else -1


class _Flags:
    """The flags of one request, each letter once, in the order they came.

    Raises: ProtocolError for a flag the command does not know, or a bad token; and for a key that
    is too long.
    """

    __slots__ = ("_key", "tokens")

    def __init__(self, command: bytes, key: bytes, flags: Sequence[bytes]) -> None:
        self._key = key
        self.tokens = {flag[:1]: flag[1:] for flag in flags}
        if len(key) > MAX_KEY_BYTES:
            raise ProtocolError(f"bad command line format: a key of {len(key)} bytes")
        if len(self.tokens) != len(flags) or not self.tokens.keys() <= _KNOWN_FLAGS[command]:
            raise ProtocolError(f"invalid or duplicate flag: {b' '.join(flags)!r}")
        for letter in self.tokens.keys() & _NUMERIC_FLAGS:
            if not self.tokens[letter].removeprefix(b"-").isdigit():
                raise ProtocolError(f"bad token in command line format: {b' '.join(flags)!r}")
        if len(self.tokens.get(b"O", b"")) > _MAX_OPAQUE_BYTES:
            raise ProtocolError("opaque token too long")

    def number(self, letter: bytes) -> int:
        """The token of `letter` as a number, 0 when it was not given."""
        return int(self.tokens.get(letter, b"0"))

    def echo(self, cas: int | None = None) -> bytes:
        """The reply's flags where no item is described: key, opaque and, of a set, the CAS."""
        returned: list[bytes] = []
        for letter, token in self.tokens.items():
            match letter:
                case b"k":
                    returned.append(b"k" + self._key)
                case b"O":
                    returned.append(b"O" + token)
                case b"c" if cas is not None:
                    returned.append(b"c%d" % cas)
        return b" ".join(returned)


def _compare(item: _Item, old: _Item | None, flags: _Flags) -> bytes:
    """The status of a set whose CAS, if given, must be the old item's; with I it may be older."""
    if b"C" not in flags.tokens:
        return b"HD"
    if old is None:
        return b"NF"
    cas = flags.number(b"C")
    if cas == old.cas:
        return b"HD"
    if b"I" in flags.tokens and 0 < cas < old.cas:
        item.stale, item.won, item.expires_at_s = True, old.won, old.expires_at_s
        return b"HD"
    return b"EX"


def _footprint(key: bytes, item: _Item) -> int:
    return _OBJECT_BYTES + len(key) + len(item.value)


class MemoryNode:
    """A `Node` that is an `ItemStore`: for one process alone, and for tests.

    Must be made inside a running event loop; it is available at once, and says so to `on_up` at
    the loop's next turn. The parameters are those of `ItemStore`.
    """

    def __init__(
        self,
        name: str = "memory",
        *,
        max_bytes: int = 64 * 1024 * 1024,
        max_item_bytes: int = 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.on_up: Callable[[], None] | None = None
        self.store = ItemStore(max_bytes=max_bytes, max_item_bytes=max_item_bytes, clock=clock)
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.call_soon(self._announce)

    def submit(self, payload: bytes, count: int, done: Done) -> None:
        """See `Node.submit`; the requests are carried out at once, only `done` comes later."""
        self._loop.call_soon(answer, done, self._replies(payload, count))

    def _replies(self, payload: bytes, count: int) -> list[Reply] | None:
        if not self._open:
            return None
        try:
            replies = self.store.execute(payload)
        except ProtocolError as error:
            logger.warning("memcached refused node=%s reason=%s", self.name, error)
            return None
        if len(replies) != count:
            logger.warning(
                "memcached refused: %d requests said, %d sent node=%s",
                count,
                len(replies),
                self.name,
            )
            return None
        return replies

    async def request(self, payload: bytes, count: int) -> list[Reply]:
        """See `Node.request`."""
        return await request(self, payload, count)

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """See `Node.wait_connected`; this one is available as long as it is open."""

    async def close(self) -> None:
        """See `Node.close`; the items are forgotten with the node."""
        self._open = False

    def _announce(self) -> None:
        if self._open and self.on_up is not None:
            try:
                self.on_up()
            except Exception:
                logger.exception("memcached callback failed node=%s", self.name)
