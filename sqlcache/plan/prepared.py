"""Prepared statements of the binary protocol: what they were prepared as, and how executed.

An execution's answer is decided by the statement, the session, the parameters' types and bytes, and
by how it was executed before: once MySQL has taken a parameter for a DOUBLE, it answers integers as
such. The server has not seen the executions that were hits: it is shown those that can matter.

A client leaves the types out when they are those of its execution before; where the server has not
seen that one, they are put in again.

Sources: MySQL's COM_STMT_EXECUTE, and Prepared_statement::check_parameter_types in its server.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from sqlcache.errors import ProtocolError
from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command
from sqlcache.mysql.packets import HEADER_BYTES, payload_bytes, read_lenenc
from sqlcache.plan.executions import ANYTHING, TEXTS, TYPE_BYTES, Execution, Known, Way, values_from
from sqlcache.plan.parameters import are_numbers, forms, is_null
from sqlcache.sql.lexer import Lexed

_FLAGS_AT = 5  # behind the code and the statement's number
_PARAMETERS_AT = 10  # behind the flags, and an iteration count that is always 1
_PARAMETER_COUNT_AVAILABLE = 0x08
_NO_MORE_THAN_A_COUNT = bytes((_PARAMETER_COUNT_AVAILABLE,))
_MOST_BARE_BYTES = _PARAMETERS_AT + 1  # of one without parameters, with a count of none
_BULK = bytes((Command.STMT_BULK_EXECUTE,))
_BULK_BRINGS_TYPES = 128
_BYTES = 2_400  # a statement takes, next to its texts, its parameters and what it means
_SHARED_BYTES = 6_000  # of what it means: that is the same for all sessions that prepare it
_UNNAMED_BYTES = TYPE_BYTES + 1  # the type of a parameter without a name, at the most
_LONGEST_TYPE_BYTES = 64  # its name included: of a longer one executions are not followed
_MOST_WAYS = 4  # of executing a statement, after which its answers are not cached any more


class _Like(NamedTuple):
    """Executions that are alike whatever their values are, of all statements prepared alike."""

    begins: bytes
    """How their packets do, up to the statement's number."""
    flags: bytes
    """What stands behind that, up to the values."""
    size: int
    """How many bytes that is with the values."""
    told: bytes
    """What stands before the values in `Execution.parameters`."""
    types: bytes | None
    execution: Execution
    """What else there is to say of each."""

    @classmethod
    def of(
        cls, payload: bytes, values: int, told: bytes, types: bytes | None, execution: Execution
    ) -> "_Like":
        """Those like one that has this payload, in which the values begin there."""
        begins = len(payload).to_bytes(3, "little") + b"\0" + payload[:1]
        flags = payload[_FLAGS_AT:values]
        return cls(begins, flags, len(payload) - _FLAGS_AT, told, types, execution)

    def parameters(self, data: bytes, at: int = 0) -> bytes | None:
        """The `Execution.parameters` of one whose payload begins there, if it is one of them."""
        at += _FLAGS_AT
        if len(data) - at != self.size or not data.startswith(self.flags, at):
            return None
        return self.told + data[at + len(self.flags) :]


class Alike:
    """What the first executions are like of those statements that were prepared by one plan."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: _Like | None = None


@dataclass(slots=True)
class Prepared:
    """One prepared statement of one session; `fingerprint`, `schema` and `preparing` are from its
    preparing: of the last see `Variables`."""

    lexed: Lexed
    fingerprint: bytes
    schema: str | None
    parameters: int
    preparing: bytes = b""
    columns: int = 0
    """How many its client knows of: of its preparing, or of its last answer."""
    dateless: tuple[bool, ...] = ()
    """See `Planner.dateless`."""
    limits: frozenset[int] = frozenset()
    """The places of the parameters that are numbers of rows, in LIMIT."""
    redefinitions: int = 0
    """Those the keeper had counted when `dateless` was found out."""
    alike: Alike = field(default_factory=Alike)
    cacheable: bool = True
    """Whether any of its executions may be a hit: else it does not matter in what ways it was
    executed."""
    types: bytes | None = None
    """Those of the client's last execution; None while they are not known."""
    servers_types: bytes | None = None
    """Those of the last execution the server has seen."""
    ways: list[Way] = field(default_factory=list)
    """Of the client's executions, those that were new ways."""
    most_ways: int = _MOST_WAYS
    """How many it may have before they are not followed any more."""
    traceable: bool = True
    """Whether `ways` are all."""
    unseen: list[tuple[Way, bytes]] = field(default_factory=list)
    """Those that the server has not seen, and the packets to show it."""
    last_hit: bytes | None = None
    """The packet of the last execution, if the server has not seen that."""
    cursor_open: bool = False
    """Whether the server may have a cursor for it: its next execution ends that."""
    long_data: bool = False
    """A part of a parameter was sent ahead: the next execution's bytes are not all of it."""
    plan: tuple[object, object] | None = None
    """What its executions are to be served by, and the context in which that holds."""
    plan_bytes: int = 0
    """What that takes."""
    meaning_bytes: int = 0
    """What is known of what it does takes."""
    _each_type: tuple[bytes, ...] = ()
    _not_texts: bytearray = field(init=False)
    """Which parameters were once anything else, one byte each: MySQL may take a text for that."""
    _like_last: _Like | None = None
    """Those like the last one without a NULL, if all in its way are alike."""
    size_bytes: int = 0
    """What it was last weighed to take."""

    def __post_init__(self) -> None:
        self._not_texts = bytearray(self.parameters)

    def planned_under(self, context: object) -> object | None:
        """What its executions are to be served by in a context, if that was decided."""
        return self.plan[1] if self.plan is not None and self.plan[0] is context else None

    @property
    def names(self) -> tuple[bytes, ...]:
        """Identifies it among a context's prepared statements; those that are alike share it."""
        return self.fingerprint, self.lexed.text

    def told(self, parameters: bytes) -> tuple[bytes, ...]:
        """What tells an execution with these `Execution.parameters` from those of all statements of
        sessions that share a context."""
        return self.fingerprint, self.lexed.text, parameters

    def weigh(self) -> int:
        """About how many bytes it takes; gives how many more than the last time."""
        each = 40 * self.parameters + len(self.types or b"")
        known = max(self.meaning_bytes - _SHARED_BYTES, 0) + self.plan_bytes
        packets = len(self.last_hit or b"")
        for _, packet in self.unseen:
            packets += len(packet)
        before, self.size_bytes = self.size_bytes, _BYTES + self.lexed.size_bytes + known + packets
        self.size_bytes += each * (1 + len(self.ways))
        return self.size_bytes - before

    def read(self, payload: bytes, capabilities: int) -> Execution:
        """Takes in an execution the client sends: each is to be read, in their order. One that is
        malformed tells nothing: the server is to refuse it."""
        like = self._like_last if self._may_be_alike else None
        if like is not None and (parameters := like.parameters(payload)) is not None:
            return like.execution.with_parameters(parameters)
        if (first := self._begin_alike(payload)) is not None:
            return first
        try:
            return self._read(payload, capabilities)
        except ProtocolError:
            self.lose_track()
            return Execution(None, cursor=self.cursor_open)

    @property
    def _may_be_alike(self) -> bool:
        return self.traceable and not self.long_data

    def _begin_alike(self, payload: bytes) -> Execution | None:
        """The same of the first execution, if it is like the first of another that was prepared by
        the same plan."""
        like = self.alike.first
        if like is None or self.types is not None or self.cursor_open or not self._may_be_alike:
            return None
        parameters, way = like.parameters(payload), like.execution.way
        if parameters is None or way is None:
            return None
        self._like_last = like
        self.types, self._each_type = like.types, way.types
        self._not_texts = bytearray(ANYTHING * self.parameters)
        self.ways.append(way)
        return Execution(parameters, like.execution.bind_at, True, way=way, new_way=True)

    def _read(self, payload: bytes, capabilities: int) -> Execution:
        """The same of one unlike the last. Raises: ProtocolError."""
        flags = payload[_FLAGS_AT] if len(payload) > _FLAGS_AT else 0
        cursor = bool(flags & ~_PARAMETER_COUNT_AVAILABLE)
        ends_cursor, self.cursor_open = self.cursor_open, cursor
        if cursor:
            self._like_last = None
        if not self.parameters:
            is_known = _is_bare(payload, capabilities) and not (ends_cursor or self.long_data)
            return self._read_bare(payload, Execution(b"" if is_known else None, cursor=cursor))
        bind_at = self._bind_at(payload, capabilities)
        if bind_at is None:
            self.lose_track()
            return Execution(None, cursor=cursor)
        values = bind_at + 1
        has_types = payload[bind_at] != 0
        if has_types:
            values = self._take_types(payload, values, capabilities)
        if self.types is None:
            self._not_texts = bytearray(ANYTHING * self.parameters)
            return Execution(None, bind_at, has_types, cursor)
        nulls = payload[bind_at - self._nulls_bytes : bind_at]
        if any(nulls):
            for place in range(self.parameters):
                self._not_texts[place] |= is_null(nulls, place)
        if not self.cacheable:
            return Execution(None, bind_at, has_types, cursor)
        forms_ = forms(payload, values, self._each_type, nulls, self.dateless, self.limits)
        if forms_ is None or self.long_data:
            self.traceable = False
            return Execution(None, bind_at, has_types, cursor)
        way = Way(self._each_type, nulls, forms_)
        new_way = self._is_new(way)
        if cursor or ends_cursor or not self.traceable:
            return Execution(None, bind_at, has_types, cursor, way, new_way)
        ways = b"".join(each.told() for each in self.ways)
        told = b"%d:" % len(self.types) + self.types + b"%d:" % len(self.ways) + ways + way.nulls
        alike = not any(nulls) and len(self.dateless) == self.parameters and all(self.dateless)
        alike = alike and len(self.types) <= _UNNAMED_BYTES * self.parameters
        execution = Execution(told + payload[values:], bind_at, has_types, cursor, way, new_way)
        if alike and are_numbers(self._each_type):
            again = Execution(None, bind_at, has_types, cursor, way)
            self._like_last = like = _Like.of(payload, values, told, self.types, again)
            if new_way and has_types and len(self.ways) == 1:
                self.alike.first = like
        return execution

    def _read_bare(self, payload: bytes, execution: Execution) -> Execution:
        """The same of one without parameters. What stands behind it, of any length, the server
        passes over: of such the next is read anew."""
        self._like_last = None
        if execution.parameters is not None and len(payload) <= _MOST_BARE_BYTES:
            self._like_last = _Like.of(payload, len(payload), b"", None, execution)
        return execution

    def runs_under(self, preparing: bytes) -> None:
        """The server may see it executed under these settings, and may do so at any time as if it
        had been prepared under them: what it has forgotten of a table it reads anew, and prepares
        all that names this again. From then on it is not known under which it was."""
        if preparing != self.preparing:
            self._like_last = None
            self.traceable = False

    def lose_track(self) -> None:
        """It is not known any more what the server takes the parameters for: where it refused some
        of them, it may go on with their types, with those of before, or with others; and after a
        COM_STMT_BULK_EXECUTE with that one's."""
        self.types = self.servers_types = self._like_last = None
        self.traceable = False
        self._not_texts = bytearray(ANYTHING * self.parameters)

    def was_withheld(self) -> None:
        """The execution that was read last is not sent after all: the server has the types of the
        one before, and takes the next one's parameters for what that has made of them."""
        self.servers_types = self._like_last = None
        self.traceable = False

    def like_last(self, packet: bytes) -> tuple[tuple[bytes, ...], Execution] | None:
        """Of an execution that can only differ from the last in its values, where all are alike
        whatever these are: as what it is `told`, and what `read` would give, but for that. Else
        None. Nothing has to be taken in."""
        like = self._like_last
        if (
            like is None
            or self.long_data
            or not (self.traceable and packet.startswith(like.begins))
        ):
            return None
        parameters = like.parameters(packet, HEADER_BYTES)
        if parameters is None:
            return None
        return (self.fingerprint, self.lexed.text, parameters), like.execution

    def _is_new(self, way: Way) -> bool:
        """Whether none like it came last; then it is taken in."""
        if self.ways and way.changes_nothing_after(self.ways[-1]):
            return False
        if len(self.ways) < self.most_ways:
            self.ways.append(way)
        else:
            self.traceable = False
        return True

    def recounts(self, columns: int) -> bool:
        """The client is told an answer with so many columns; whether it knew of others. MySQL
        tells of that, but by those that it knows of itself."""
        before, self.columns = self.columns, columns
        return columns != before

    def redefined(self, dateless: tuple[bool, ...]) -> None:
        """Definitions changed: the server may have prepared the statement anew, and forgotten how
        it was executed, or not."""
        self._like_last, self.alike = None, Alike()
        self.traceable &= len(self.ways) <= 1 and dateless == self.dateless
        self.dateless = dateless
        if self.ways:
            self.most_ways = 1

    def was_hit(self, data: bytes, execution: Execution) -> bytes:
        """An execution was answered from the cache; gives its packet as it can be sent at any
        time, which changes what types the server has. Raises: ProtocolError."""
        packet = self.last_hit = self.with_types(data, execution)
        if execution.new_way and execution.way is not None:
            self.unseen.append((execution.way, packet))
        self.servers_types = None
        return packet

    def with_types(self, data: bytes, execution: Execution) -> bytes:
        """The execution's packet (or the first part of a very long one) with its types in it.

        Raises: ProtocolError where it has no room for them.
        """
        if execution.bind_at is None or execution.has_types or self.types is None:
            return data
        length = payload_bytes(data) + len(self.types)
        if not self._has_room_for_types(data):
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

    def several_for_server(self, data: bytes) -> bytes:
        """The same for a COM_STMT_BULK_EXECUTE. Raises: ProtocolError."""
        if self.types is None or self.servers_types == self.types or may_bring_types(data):
            return data
        if not self._has_room_for_types(data):
            raise ProtocolError("a long COM_STMT_BULK_EXECUTE leaves out its parameters' types")
        length = payload_bytes(data) + len(self.types)
        at = HEADER_BYTES + _FLAGS_AT
        flags = int.from_bytes(data[at : at + 2], "little") | _BULK_BRINGS_TYPES
        head = length.to_bytes(3, "little") + data[3:at] + flags.to_bytes(2, "little")
        return head + self.types + data[at + 2 :]

    def _has_room_for_types(self, data: bytes) -> bool:
        return payload_bytes(data) + len(self.types or b"") < MAX_PAYLOAD_BYTES

    def unseen_before(self, data: bytes, execution: Execution) -> list[bytes]:
        """What the server is to run before this execution, which goes to it: hits in other ways,
        one without a cursor before one with it, and one that tells the types before one that has no
        room for them.

        Where the first execution MySQL sees has a cursor, it never ends its answer to one without.
        """
        if self.long_data:  # which another would use up
            return []
        if not self.unseen and self.last_hit is None:
            return []
        last, self.last_hit = self.last_hit, None
        unseen, self.unseen = self._others(execution), []
        packets = [packet for _, packet in unseen]
        lacks_types = not (execution.has_types or self._has_room_for_types(data))
        if last is not None and (execution.cursor or lacks_types):
            packets += [] if last in packets[-1:] else [last]
            self.servers_types = self.types if lacks_types else self.servers_types
        return packets

    def take_unseen(self) -> list[bytes]:
        """What the server is to run before what may change how it prepares statements, or sends a
        part of a parameter ahead."""
        unseen, self.unseen = self.unseen, []
        return [packet for _, packet in unseen]

    def values(self, payload: bytes, execution: Execution) -> list[Known] | None:
        """The parameters of the execution that was read last, see `values_told`; None where they
        are not known."""
        if execution.bind_at is None:
            return None if self.parameters else []
        if self.types is None or self.long_data or execution.cursor:
            return None
        bind_at = execution.bind_at
        nulls = payload[bind_at - self._nulls_bytes : bind_at]
        values_at = bind_at + 1 + (len(self.types) if execution.has_types else 0)
        codes = bytes(each[0] for each in self._each_type)
        flags = bytes(each[1] for each in self._each_type)
        return values_from(payload, values_at, codes, flags, nulls, self._not_texts)

    def is_plain(self, execution: Execution) -> bool:
        """Whether the execution can be sent by itself, with nothing before it."""
        unseen = self.unseen and self._others(execution)
        return not (execution.cursor or self.long_data or unseen)

    def _others(self, execution: Execution) -> list[tuple[Way, bytes]]:
        """What is unseen and in another way than this execution."""
        seen_by_it = bool(self.unseen) and self.unseen[-1][0] == execution.way
        return self.unseen[:-1] if seen_by_it else self.unseen

    def tells_types(self, payload: bytes, capabilities: int) -> bool:
        """Whether an execution comes with the types of all its parameters, if there are any."""
        try:
            bind_at = self._bind_at(payload, capabilities) if self.parameters else None
        except ProtocolError:
            return False
        return bind_at is None or payload[bind_at] != 0

    @property
    def _nulls_bytes(self) -> int:
        return (self.parameters + 7) // 8

    def _bind_at(self, payload: bytes, capabilities: int) -> int | None:
        offset = _PARAMETERS_AT
        if capabilities & Capability.QUERY_ATTRIBUTES:  # whether a flag tells of it or not
            count, offset = read_lenenc(payload, offset)
            if count != self.parameters:
                return None
        bind_at = offset + self._nulls_bytes
        if len(payload) <= bind_at:
            raise ProtocolError("a COM_STMT_EXECUTE is cut short")
        return bind_at

    def _take_types(self, payload: bytes, at: int, capabilities: int) -> int:
        """Takes in the types that stand there; gives where they end."""
        if self.types is not None and payload.startswith(self.types, at):
            return at + len(self.types)
        self.types, self._each_type, at = self._read_types(payload, at, capabilities)
        self._like_last = None
        for place, type_ in enumerate(self._each_type):
            self._not_texts[place] |= type_[0] not in TEXTS
        if len(self.types) > _LONGEST_TYPE_BYTES * self.parameters:
            self.lose_track()
        return at

    def _read_types(
        self, payload: bytes, start: int, capabilities: int
    ) -> tuple[bytes, tuple[bytes, ...], int]:
        """The types as they stand there, each by itself, and where they end."""
        offset = start
        each = []
        for _ in range(self.parameters):
            each.append(payload[offset : offset + TYPE_BYTES])
            offset += TYPE_BYTES
            if capabilities & Capability.QUERY_ATTRIBUTES:  # with the parameter's name
                length, offset = read_lenenc(payload, offset)
                offset += length
        if len(payload) < offset:
            raise ProtocolError("a COM_STMT_EXECUTE is cut short")
        return payload[start:offset], tuple(each), offset


def may_bring_types(packet: bytes) -> bool:
    """Whether an execution, of one or of several rows, of a statement of which nothing else is
    known may tell the types of its parameters."""
    payload = packet[HEADER_BYTES:]
    if packet.startswith(_BULK, HEADER_BYTES):
        flags = int.from_bytes(payload[_FLAGS_AT : _FLAGS_AT + 2], "little")
        return bool(flags & _BULK_BRINGS_TYPES)
    return len(payload) > _MOST_BARE_BYTES


def _is_bare(payload: bytes, capabilities: int) -> bool:
    """Whether an execution of what has no parameters is whole and comes with nothing: no query
    attributes, and no cursor is asked for."""
    if len(payload) < _PARAMETERS_AT:
        return False
    flags = payload[_FLAGS_AT : _FLAGS_AT + 1]
    if capabilities & Capability.QUERY_ATTRIBUTES and flags == _NO_MORE_THAN_A_COUNT:
        return payload[_PARAMETERS_AT:] == b"\0"
    return flags == b"\0"
