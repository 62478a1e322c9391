"""A session of a fuzzer: commands of the protocol as the packets that answer them.

Accounts have no password, so no exchange of one comes between.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, payload_bytes, read_lenenc
from sqlcache.mysql.response import ResponseTracker
from tests.fakes.raw_client import NEW, OLD, Address, RawClient, packets_of

CAPABILITIES = {"old": OLD, "new": NEW}
_OF_THE_PLAN = Status.QUERY_WAS_SLOW | Status.NO_INDEX_USED | Status.NO_GOOD_INDEX_USED

Parameter = int | float | str | None

_DEFINITION = b"\x03def"
_LOCK_WAIT_TIMEOUT = b"\xff\xb5\x04"


@dataclass(frozen=True, slots=True)
class Answer:
    """All packets that answer one command, their headers included, and the status at their end."""

    packets: tuple[bytes, ...]
    status: int | None
    prepared: int | None = None

    @property
    def waited_for_a_lock(self) -> bool:
        """Whether it is the error that ends a wait for a lock."""
        return bool(self.packets) and self.packets[-1][4:7] == _LOCK_WAIT_TIMEOUT

    def same_as(self, other: Answer, *, ordered: bool, grouped: bool = False) -> bool:
        """Whether a client could not tell them apart; `ordered`: not by the rows' order either.
        `grouped`: the plan, which is the server's to choose, shows in the columns' origins."""
        if self.packets == other.packets:
            return True
        if grouped:
            return self._without_origins().same_as(other._without_origins(), ordered=ordered)
        if ordered or len(self.packets) != len(other.packets):
            return False
        return sorted(p[4:] for p in self.packets) == sorted(p[4:] for p in other.packets)

    def _without_origins(self) -> Answer:
        return replace(self, packets=tuple(map(_without_origin, self.packets)))

    def shown(self) -> str:
        """The packets as a person can compare them."""
        return "\n".join(f"    {packet[3]:3} {packet[4:204]!r}" for packet in self.packets)


class Wire:
    """One session. `masked` is what it calls its own by a name that differs from the twin's."""

    def __init__(self, address: Address, user: str, schema: str, flavour: str) -> None:
        self._client = RawClient(address)
        self._client.read_greeting()
        self._client.log_in(user, "", schema, CAPABILITIES[flavour])
        self._prepared: dict[str, tuple[int, int]] = {}
        self._bound: set[str] = set()

    def close(self) -> None:
        self._client.close()

    def send(self, command: int, payload: bytes) -> int:
        """Sends a command and does not wait; gives the code that `receive` must be told."""
        self._client.command(bytes((command,)) + payload)
        return command

    def receive(self, command: int, file: bytes = b"") -> Answer:
        """The answer to the last command sent; `file` is what a LOAD DATA LOCAL gets."""
        tracker = ResponseTracker(command, self._client.capabilities)
        answer = b""
        status: int | None = None
        while not tracker.done:
            header = self._client.read_bytes(4)
            packet = header + self._client.read_bytes(payload_bytes(header))
            tracker.feed(packet)
            answer += packet
            if tracker.wants_file:
                self._client.send(packets_of(file, packet[3] + 1))
                if file:
                    self._client.send(packets_of(b"", packet[3] + 2))
                tracker.file_sent()
            if tracker.ends:
                status = tracker.ends[-1].status
        packets = _packets(answer, tracker)
        made = tracker.prepared
        if made is not None:  # MariaDB counts in them what it did for itself
            packets = (packets[0][:5] + bytes(4) + packets[0][9:], *packets[1:])
        return Answer(packets, status, None if made is None else made.number)

    # Prepared statements, by the names a script gives them.

    def remember(self, name: str, answer: Answer) -> None:
        """`answer` is that to the COM_STMT_PREPARE of a statement to be called `name`."""
        self._prepared.pop(name, None)
        self._unbind(name)
        if answer.prepared is not None:
            parameters = int.from_bytes(answer.packets[0][11:13], "little")
            self._prepared[name] = answer.prepared, parameters

    def forget(self) -> None:
        """The server has forgotten all prepared statements."""
        self._prepared.clear()
        self._bound.clear()

    def number(self, name: str) -> bytes:
        """A prepared statement's number as commands begin with it; one nobody has if unknown."""
        return struct.pack("<I", self._prepared.get(name, (4_000_000_000, 0))[0])

    def execution(self, name: str, values: Sequence[Parameter], *, cursor: bool) -> bytes:
        """A COM_STMT_EXECUTE's payload; types are left out where an earlier one of the same
        values' kinds has named them."""
        count = self._prepared.get(name, (0, 0))[1]
        given = (list(values) + [None] * count)[:count]
        payload = self.number(name) + bytes((cursor,)) + struct.pack("<I", 1)
        if not count:
            return payload
        nulls = sum(1 << at for at, value in enumerate(given) if value is None)
        payload += nulls.to_bytes((count + 7) // 8, "little")
        kinds = b"".join(_kind(value) for value in given)
        bound = f"{name} {kinds.hex()}"
        if bound in self._bound:
            payload += b"\0"
        else:
            self._unbind(name)
            self._bound.add(bound)
            payload += b"\1" + kinds
        return payload + b"".join(map(_binary, given))

    def _unbind(self, name: str) -> None:
        """The server knows no types of this statement's parameters."""
        self._bound = {each for each in self._bound if not each.startswith(f"{name} ")}

    def change_user(self, user: str, schema: str) -> Answer:
        """COM_CHANGE_USER to an account without a password. Raises: PermissionError."""
        payload = user.encode() + b"\0\0" + schema.encode() + b"\0" + struct.pack("<H", 45)
        self.send(Command.CHANGE_USER, payload + b"mysql_native_password\0")
        ok = self._client.authenticate("")
        self.forget()
        return Answer((bytes(4) + ok,), None)


def _packets(answer: bytes, tracker: ResponseTracker) -> tuple[bytes, ...]:
    """Cut in packets, without the flags that say how the server came by the answer: how long it
    took, and which indexes its plan used, which may be another one each time."""
    plain = bytearray(answer)
    for offset in tracker.status_offsets:
        (flags,) = struct.unpack_from("<H", plain, offset)
        struct.pack_into("<H", plain, offset, flags & ~_OF_THE_PLAN)
    packets = []
    at = 0
    while at < len(plain):
        end = at + 4 + payload_bytes(bytes(plain[at : at + 4]))
        packets.append(bytes(plain[at:end]))
        at = end
    return tuple(packets)


def _without_origin(packet: bytes) -> bytes:
    """A column's definition without the table and column it comes from, and without its flags."""
    if not packet.startswith(_DEFINITION, HEADER_BYTES):
        return packet
    fields = []
    at = HEADER_BYTES
    for _ in range(6):
        length, start = read_lenenc(packet, at)
        at = start + length
        fields.append(packet[start:at])
    _, schema, table, _, name, _ = fields
    return b"/".join((schema, table, name, packet[at : at + 8], packet[at + 10 :]))


def _kind(value: Parameter) -> bytes:
    match value:
        case None:
            return b"\x06\0"
        case int():
            return b"\x08\0"
        case float():
            return b"\x05\0"
        case str():
            return b"\xfd\0"


def _binary(value: Parameter) -> bytes:
    match value:
        case None:
            return b""
        case int():
            return struct.pack("<q", value)
        case float():
            return struct.pack("<d", value)
        case str():
            text = value.encode()
            return bytes((len(text),)) + text
