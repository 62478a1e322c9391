"""Prepared statements of the binary protocol: what they were prepared as, and their parameters.

An execution's answer is decided by the statement, the session, and the parameters' types and bytes.
A client leaves the types out when they are those of its execution before; where that one was a hit
the server has not seen them, and they are put in again.

Source: MySQL's COM_STMT_EXECUTE.
"""

from dataclasses import dataclass

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability
from sqlcache.mysql.packets import HEADER_BYTES, payload_bytes, read_lenenc
from sqlcache.sql.lexer import Lexed

_FLAGS_AT = 5
_PARAMETERS_AT = 10  # behind the flags, and an iteration count that is always 1
_PARAMETER_COUNT_AVAILABLE = 0x08
_TYPE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Execution:
    """One COM_STMT_EXECUTE. `bind_at` is where in the payload it says whether types follow; None
    where there are no parameters, or they cannot be told from query attributes.

    `parameters` are their types and bytes; None where these do not decide the answer: a cursor
    is asked for, query attributes come with it, or a part was sent ahead.
    """

    parameters: bytes | None
    bind_at: int | None = None
    has_types: bool = False
    cursor: bool = False


@dataclass(slots=True)
class Prepared:
    """One prepared statement of one session; `fingerprint` and `schema` are from its preparing."""

    lexed: Lexed
    fingerprint: bytes
    schema: str | None
    parameters: int
    types: bytes | None = None
    """Those of the client's last execution; None while they are not known."""
    servers_types: bytes | None = None
    """Those of the last execution the server has seen."""
    unseen: bytes | None = None
    """The packet of the last execution, with its types, if it was a hit."""
    long_data: bool = False
    """A part of a parameter was sent ahead: the next execution's bytes are not all of it."""

    def read(self, payload: bytes, capabilities: Capability) -> Execution:
        """Takes in an execution the client sends: each is to be read, in their order.

        Raises: ProtocolError.
        """
        flags = payload[_FLAGS_AT] if len(payload) > _FLAGS_AT else 0
        cursor = bool(flags & ~_PARAMETER_COUNT_AVAILABLE)
        if not self.parameters:
            plain = payload[_FLAGS_AT : _FLAGS_AT + 1] == b"\0"
            return Execution(b"" if plain else None, cursor=cursor)
        bind_at = self._bind_at(payload, capabilities)
        if bind_at is None:
            self.types = self.servers_types = None
            return Execution(None, cursor=cursor)
        values = bind_at + 1
        has_types = payload[bind_at] != 0
        if has_types:
            end = self._types_end(payload, values, capabilities)
            self.types, values = payload[values:end], end
        if cursor or self.long_data or self.types is None:
            return Execution(None, bind_at, has_types, cursor)
        nulls = payload[bind_at - self._nulls_bytes : bind_at]
        told = b"%d:" % len(self.types) + self.types + nulls + payload[values:]
        return Execution(told, bind_at, has_types)

    def with_types(self, data: bytes, execution: Execution) -> bytes:
        """The execution's packet (or the first part of a very long one) with its types in it.

        Raises: ProtocolError where it has no room for them.
        """
        if execution.bind_at is None or execution.has_types or self.types is None:
            return data
        length = payload_bytes(data) + len(self.types)
        if length >= MAX_PAYLOAD_BYTES:
            raise ProtocolError("a long COM_STMT_EXECUTE leaves out its parameters' types")
        at = HEADER_BYTES + execution.bind_at
        head = length.to_bytes(3, "little") + data[3:at]
        return head + b"\x01" + self.types + data[at + 1 :]

    def for_server(self, data: bytes, execution: Execution) -> bytes:
        """What to send upstream for it: with types the server has not seen."""
        if self.servers_types != self.types:
            data = self.with_types(data, execution)
        self.servers_types = self.types
        return data

    def unseen_before(self, execution: Execution) -> bytes | None:
        """What the server is to run before this execution, which goes to it: the hit before it,
        where this one asks for a cursor.

        Where the first execution MySQL sees has a cursor, it never ends its answer to one without.
        """
        unseen, self.unseen = self.unseen, None
        return unseen if execution.cursor and not self.long_data else None

    @property
    def _nulls_bytes(self) -> int:
        return (self.parameters + 7) // 8

    def _bind_at(self, payload: bytes, capabilities: Capability) -> int | None:
        offset = _PARAMETERS_AT
        if capabilities & Capability.QUERY_ATTRIBUTES:
            flags = payload[_FLAGS_AT] if len(payload) > _FLAGS_AT else 0
            if not flags & _PARAMETER_COUNT_AVAILABLE:
                return None
            count, offset = read_lenenc(payload, offset)
            if count != self.parameters:
                return None
        bind_at = offset + self._nulls_bytes
        if len(payload) <= bind_at:
            raise ProtocolError("a COM_STMT_EXECUTE is cut short")
        return bind_at

    def _types_end(self, payload: bytes, offset: int, capabilities: Capability) -> int:
        if not capabilities & Capability.QUERY_ATTRIBUTES:
            return offset + _TYPE_BYTES * self.parameters
        for _ in range(self.parameters):  # each type with the parameter's name
            length, offset = read_lenenc(payload, offset + _TYPE_BYTES)
            offset += length
        return offset
