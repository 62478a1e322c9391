"""memcached's meta protocol as bytes: requests out, replies in, no I/O.

Laws:

- One request gives exactly one reply, and replies come in the order of the requests. The `q`
  flag, which drops replies, breaks this law and must not be sent.
- A reply is a plain tuple: the hot path makes thousands of them a second.
- Keys are not looked at here: who makes them checks them once, by `checked_key`. One that memcached
  would not take could end a request, and begin another.
- A `SERVER_ERROR` line answers one request, and the connection lives on: memcached swallows the
  value it refuses. `ERROR`, `CLIENT_ERROR` and any line that is no meta reply mean that the two
  ends no longer agree where a request begins: `ProtocolError`.

Source: memcached's doc/protocol.txt, "Meta Commands".
"""

from operator import length_hint
from typing import Final, Literal, TypeAlias

from sqlcache.errors import ProtocolError

Reply: TypeAlias = tuple[bytes, bytes | None, bytes]
"""Status, value and flags of one reply.

The status is `VA` (with a value), `HD` (done, or a hit asked for without its value), `EN` (miss),
`NS` (not stored), `EX` (the CAS differs), `NF` (not found), `MN` (no-op), or `SE`, which is ours:
a `SERVER_ERROR`, whose message stands in place of the flags. The value is None unless `VA`. The
flags are the raw bytes after the status, such as `c12 t-1`.
"""

Mode: TypeAlias = Literal[b"S", b"E", b"A", b"P", b"R"]
"""What `ms` does: set, add, append, prepend, replace."""

MAX_KEY_BYTES: Final = 250

MAX_TTL_S: Final = 30 * 24 * 3600
"""The longest TTL memcached reads as a duration; above it, it would be an absolute Unix time."""

META_NOOP: Final = b"mn\r\n"

STORED: Final = b"HD"
"""The status of a value that was stored, or appended."""

NOT_STORED: Final = b"NS"
"""The status of a value that was not: what it was to be added to is not there, or what it was to
take the place of is; or there is no room for the two together."""

FOUND: Final = b"HD"
"""The status of an item that is there, where its value is not asked for."""

NOT_OLD: Final = frozenset((b"HD", b"NS"))
"""The statuses of an item that was replaced, or was not there."""

_FORBIDDEN_IN_KEYS: Final = bytes(range(0x21)) + b"\x7f"

_BARE_REPLIES: Final[dict[bytes, Reply]] = {
    status: (status, None, b"") for status in (b"HD", b"EN", b"NS", b"EX", b"NF", b"MN")
}

# A dict look-up costs a third of int() with its check; tags and small entries are below this.
_SMALL_SIZES: Final = {b"%d" % size: size for size in range(2048)}

# A key, an opaque and every flag memcached returns fit with room to spare.
_MAX_LINE_BYTES: Final = 2048

_LONG_BYTES: Final = 131_072


def meta_get(key: bytes, flags: bytes = b"v") -> bytes:
    """The `mg` request for `key`; `flags` are separated by spaces, such as `b"v c t"`."""
    return b"mg %b %b\r\n" % (key, flags)


def meta_set(
    key: bytes,
    value: bytes,
    *,
    mode: Mode = b"S",
    ttl_s: int,
    cas: int | None = None,
    flags: bytes = b"",
) -> bytes:
    """The `ms` request that stores `value` under `key` for `ttl_s` seconds (0: without end).

    With `cas`, only while the stored item's CAS unique is still that one. Append and prepend keep
    the TTL the item has: `ttl_s` is ignored. They answer `NS` where there is no item, and when the
    joined value would pass the item size limit. `flags` are more flags, such as `b"c"`.

    Raises: ValueError for a negative TTL.
    """
    more = b" M" + mode if mode != b"S" else b""
    if cas is not None:
        more += b" C%d" % cas
    if flags:
        more += b" " + flags
    return b"ms %b %d T%d%b\r\n%b\r\n" % (key, len(value), clamped_ttl(ttl_s), more, value)


def meta_append(key: bytes, value: bytes, *, begins: bytes = b"", ttl_s: int = 0) -> list[bytes]:
    """The two requests that append `value` to an item, or make it with this TTL.

    An append to a missing item is refused, so one that `begins` so is added first; where there is
    one, that changes nothing.
    """
    add = meta_set(key, begins, mode=b"E", ttl_s=ttl_s)
    return [add, meta_set(key, value, mode=b"A", ttl_s=0)]


def meta_delete(key: bytes, *, cas: int | None = None) -> bytes:
    """The `md` request for `key`; with `cas`, only while the item's CAS unique is that one."""
    more = b" C%d" % cas if cas is not None else b""
    return b"md %b%b\r\n" % (key, more)


def checked_key(key: bytes) -> bytes:
    """`key` itself: 1 to 250 bytes without white space or control bytes.

    Raises: ValueError naming the key.
    """
    size = len(key)
    if not 0 < size <= MAX_KEY_BYTES or len(key.translate(None, _FORBIDDEN_IN_KEYS)) != size:
        raise ValueError(
            f"not a memcached key: {key!r} (1 to {MAX_KEY_BYTES} bytes, "
            "no white space or control bytes)"
        )
    return key


def clamped_ttl(ttl_s: int) -> int:
    """`ttl_s`, at most 30 days: memcached may always forget sooner, never later, than asked.

    Raises: ValueError for a negative TTL, which memcached would take as already over.
    """
    if ttl_s < 0:
        raise ValueError(f"a TTL must not be negative: {ttl_s}")
    return ttl_s if ttl_s <= MAX_TTL_S else MAX_TTL_S


def flag_of(flags: bytes, letter: bytes) -> bytes | None:
    """The token of the reply flag `letter` in `flags` (`b"12"` of `b"c12 t-1"` for `b"c"`).

    Empty for a flag without a token, such as `W`; None when it is not there.
    """
    for flag in flags.split():
        if flag[:1] == letter:
            return flag[1:]
    return None


class ReplyParser:
    """Replies out of a byte stream that may be cut anywhere.

    After a `ProtocolError` the stream's position is lost: the parser must not be fed again.
    """

    __slots__ = ("_held", "_held_bytes", "_needed_bytes")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._needed_bytes = 0

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that `data` completes, in order.

        Raises: ProtocolError when the bytes are not a meta reply, or say that a request was
        malformed.
        """
        if self._held_bytes:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes < self._needed_bytes:
                return []
            data = b"".join(self._held)
            self._held.clear()
            self._held_bytes = 0

        if len(data) > _LONG_BYTES:
            return self._replies_from(data, 0)
        # Cutting everything at once in C is twice as fast as looking for one line end at a time,
        # but where values are long, or have many line ends of their own.
        lines = data.split(b"\r\n")
        tail = lines.pop()
        replies: list[Reply] = []
        append = replies.append
        remaining = iter(lines)
        for line in remaining:
            bare = _BARE_REPLIES.get(line)
            if bare is not None:
                append(bare)
            elif line[:3] == b"VA ":
                size_text, _, flags = line[3:].partition(b" ")
                size = _SMALL_SIZES.get(size_text)
                if size is None:
                    size = _size(size_text, line)
                value = next(remaining, None)
                if value is None or len(value) != size:  # cut amid it, or not all here
                    before = lines[: -length_hint(remaining) - (1 if value is None else 2)]
                    return replies + self._replies_from(
                        data, sum(map(len, before)) + 2 * len(before)
                    )
                append((b"VA", value, flags))
            else:
                append(_rare_reply(line))
        if tail:
            self._hold(tail)
        return replies

    def _replies_from(self, data: bytes, at: int) -> list[Reply]:
        """The replies from there on, one at a time: each value is passed over by its size."""
        replies: list[Reply] = []
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            begin = end + 2
            if line[:3] == b"VA ":
                size_text, _, flags = line[3:].partition(b" ")
                end = begin + _size(size_text, line)
                if len(data) < end + 2:
                    self._hold(data[at:], end + 2 - at)
                    return replies
                if data[end : end + 2] != b"\r\n":
                    raise ProtocolError(
                        f"memcached's value does not end where it said: {line[:80]!r}"
                    )
                replies.append((b"VA", data[begin:end], flags))
                begin = end + 2
            else:
                replies.append(_BARE_REPLIES.get(line) or _rare_reply(line))
            at = begin
        if at < len(data):
            self._hold(data[at:])
        return replies

    def _hold(self, data: bytes, needed_bytes: int = 0) -> None:
        """Keep the start of a reply until `needed_bytes` of it are here."""
        if not needed_bytes and len(data) > _MAX_LINE_BYTES:
            raise ProtocolError(f"memcached sent a line without an end: {data[:80]!r}")
        self._held.append(data)
        self._held_bytes = len(data)
        self._needed_bytes = needed_bytes


def _size(text: bytes, line: bytes) -> int:
    if not text.isdigit() or len(text) > 10:
        raise ProtocolError(f"memcached's value has no size: {line[:80]!r}")
    return int(text)


def _rare_reply(line: bytes) -> Reply:
    """A reply with flags but no value, or an error line."""
    status = line[:2]
    if line[2:3] == b" " and status in _BARE_REPLIES:
        return status, None, line[3:]
    if line.startswith(b"SERVER_ERROR"):
        return b"SE", None, line[13:]
    raise ProtocolError(f"memcached answered {line[:80]!r}")
