"""Result sets as rows: a stored answer is decoded by aiomysql itself, from the bytes MySQL sent.

So a hit's values have the types a query's have, for they come from the same converters. What the
column definitions of a result say is worked out once for the same bytes, and the rows of an entry
that is near are kept decoded: they are tuples of values that cannot be changed.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from sqlcache.cache import entry
from sqlcache.cache.outcomes import Hit
from sqlcache.cache.reads import Basis, Read
from sqlcache.driver import FieldDescriptorPacket, MysqlPacket, MySQLResult, aiomysql
from sqlcache.mysql.packets import HEADER_BYTES, is_continued, payload_bytes, read_lenenc

Row = tuple[Any, ...]
Params = Sequence[Any] | dict[str, Any] | None
T = TypeVar("T")

_LAYOUTS_BYTES: Final = 1_000_000  # as definitions; read they are fifteen times as much
_DECODED_BYTES: Final = 8_000_000  # as entries; as rows of Python's it is several times as much


class Rows:
    """One answer: its rows, and the names of its columns as aiomysql's DictCursor has them. `basis`
    says on what it hangs, or why that is not known."""

    __slots__ = ("basis", "names", "rows")

    def __init__(
        self, names: tuple[str, ...], rows: Sequence[Row], basis: Basis | str = ""
    ) -> None:
        self.names = names
        self.rows = rows
        self.basis = basis

    def on(self, basis: Basis | str) -> "Rows":
        """The same rows, that hang on this."""
        return Rows(self.names, self.rows, basis)

    def each(self, into: Callable[..., T] | None) -> list[Any]:
        """The rows as they are, or one `into(column=value, ...)` for each."""
        if into is None:
            return list(self.rows)
        return [self.one(into, row) for row in self.rows]

    def one(self, into: Callable[..., T] | None, row: Row) -> Any:
        """One row in that form."""
        return row if into is None else into(**dict(zip(self.names, row, strict=True)))

    def first(self, into: Callable[..., T] | None) -> Any:
        """The first row in that form; None where there is none."""
        return self.one(into, self.rows[0]) if self.rows else None

    def value(self) -> Any:
        """The first row's first column; None where there is no row."""
        return self.rows[0][0] if self.rows else None


class Decoder:
    """Decodes stored result sets as connections of one kind decode what they receive."""

    def __init__(self, connection: aiomysql.Connection) -> None:
        self._connection = connection
        self._layouts: dict[bytes, tuple[MySQLResult, tuple[str, ...]]] = {}
        self._layouts_bytes = 0
        self._decoded: OrderedDict[bytes, tuple[bytes, Rows]] = OrderedDict()
        self._decoded_bytes = 0

    def rows(self, read: Read, hit: Hit) -> Rows | None:
        """The rows of an entry; None where it has another form than a result set's."""
        known = self._decoded.get(read.key)
        if known is not None and known[0] is hit.value:
            return known[1]
        packets = entry.packets_for(hit.value, hit.versions_bytes, 0)
        if packets is None:
            return None
        rows = self._decode(packets)
        self._keep(read.key, hit.value, rows)
        return rows

    def _keep(self, key: bytes, value: bytes, rows: Rows) -> None:
        """Remembers the rows for as long as the look-ups find the very same entry, as long as
        there is room."""
        before = self._decoded.pop(key, None)
        self._decoded_bytes -= len(before[0]) if before else 0
        if len(value) > _DECODED_BYTES // 100:
            return
        self._decoded[key] = value, rows
        self._decoded_bytes += len(value)
        while self._decoded_bytes > _DECODED_BYTES:
            _, (evicted, _) = self._decoded.popitem(last=False)
            self._decoded_bytes -= len(evicted)

    def _decode(self, packets: bytes) -> Rows:
        """The rows of a whole text result set without DEPRECATE_EOF."""
        columns, _ = read_lenenc(packets, HEADER_BYTES)
        start = _skip(packets, 0, 1 + columns + 1)
        result, names = self._layout(packets[:start], columns)
        encoding = self._connection.encoding
        read = result._read_row_from_packet
        payloads = _payloads(packets, start)
        return Rows(names, [read(MysqlPacket(payload, encoding)) for payload in payloads])

    def _layout(self, definitions: bytes, columns: int) -> tuple[MySQLResult, tuple[str, ...]]:
        known = self._layouts.get(definitions)
        if known is None:
            known = self._read_layout(definitions, columns)
            self._layouts_bytes += len(definitions)
            if self._layouts_bytes > _LAYOUTS_BYTES:
                self._layouts.clear()
                self._layouts_bytes = len(definitions)
            if self._layouts_bytes <= _LAYOUTS_BYTES:
                self._layouts[definitions] = known
        return known

    def _read_layout(self, definitions: bytes, columns: int) -> tuple[MySQLResult, tuple[str, ...]]:
        result = MySQLResult(_Stored(definitions, self._connection))
        result.field_count = columns
        at_once = result._get_descriptions()
        try:
            at_once.send(None)  # it has all it waits for
        except StopIteration:
            return result, names_of(result)
        raise AssertionError("aiomysql waits for more than the packets of a result set")


class _Stored:
    """What aiomysql's result asks of a connection, from packets that are there already."""

    def __init__(self, packets: bytes, connection: aiomysql.Connection) -> None:
        self._payloads = iter(_payloads(packets, _skip(packets, 0, 1), last=True))
        self.use_unicode = connection.use_unicode
        self.encoding = connection.encoding
        self.decoders = connection.decoders

    async def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        return packet_type(next(self._payloads), self.encoding)


def names_of(result: MySQLResult) -> tuple[str, ...]:
    """The columns' names; one that was there before is written with its table, as DictCursor does.

    Raises: nothing, also for a result without columns.
    """
    names: list[str] = []
    field: FieldDescriptorPacket
    for field in getattr(result, "fields", ()):
        names.append(f"{field.table_name}.{field.name}" if field.name in names else field.name)
    return tuple(names)


def _skip(packets: bytes, offset: int, count: int) -> int:
    for _ in range(count):
        offset += HEADER_BYTES + payload_bytes(packets, offset)
    return offset


def _payloads(packets: bytes, offset: int, *, last: bool = False) -> Iterable[bytes]:
    """The payloads from there on, those of several packets joined; `last`: the last one, too."""
    pending = b""
    while offset < len(packets):
        length = payload_bytes(packets, offset)
        end = offset + HEADER_BYTES + length
        if end == len(packets) and not last:
            return
        payload = packets[offset + HEADER_BYTES : end]
        offset = end
        if is_continued(length):
            pending += payload
        else:
            yield pending + payload if pending else payload
            pending = b""
