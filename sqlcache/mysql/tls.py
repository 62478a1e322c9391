"""TLS over memory: what it encrypts and decrypts comes and goes some other way."""

import ssl
from collections.abc import Iterator
from time import monotonic

_RECORD_BYTES = 16_384  # OpenSSL reads one record at a time
_PIECE_BYTES = 65_536  # put into a buffer at once: it stays as large as it has ever been
_HEADER_BYTES = 5
_LONGEST_BYTES = _HEADER_BYTES + _RECORD_BYTES + 2_048  # of a record, whatever the cipher adds

_RECORDS_AT_ONCE = 64  # they may be of a byte each
# So many may say nothing in so many seconds: a change of keys takes as long as 64 kB of data.
_MOST_SILENT, _WITHIN_S = 32, 10.0


class Tls:
    """A TLS session over two memory buffers: ciphertext in, plaintext out, and the reverse."""

    def __init__(
        self, context: ssl.SSLContext, server_side: bool, server_hostname: str | None
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side, server_hostname
        )
        self._kept: bytes | memoryview = b""  # what has come and is not in a buffer yet
        self._missing = 0  # bytes of the record whose beginning is
        self._silent = 0  # records, since
        self._since = 0.0
        self.established = False
        self.ended = False
        self.error = ""

    @property
    def waits(self) -> bool:
        """Whether there is more to decrypt of what has come already: in another turn."""
        return len(self._kept) >= _HEADER_BYTES

    def decrypt(self, data: bytes = b"") -> bytes:
        """What the peer says by `data`, or as much of it as is decrypted at once, see `waits`. It
        has ended where too many records say nothing."""
        if self._kept:
            return self._decrypt_records(b"".join((self._kept, data)) if data else self._kept)
        size = len(data)
        if (
            self._missing
            or size < _HEADER_BYTES
            or size != _HEADER_BYTES + (data[3] << 8 | data[4])
        ):
            return self._decrypt_records(data)
        self._incoming.write(data)  # one record: most often
        return self._decrypt()

    def _decrypt_records(self, data: bytes | memoryview) -> bytes:
        view, at, plain = memoryview(data), 0, list[bytes]()
        for _ in range(_RECORDS_AT_ONCE):
            if not self._missing:
                if len(view) - at < _HEADER_BYTES:
                    break
                self._missing = _record_bytes(view, at)
            piece = view[at : at + self._missing]
            self._incoming.write(piece)
            at += len(piece)
            self._missing -= len(piece)
            if self._missing:
                break
            # A greeting that is not all there raises: it is not looked at for each byte of it.
            if self.established or self._incoming.pending > _RECORD_BYTES:
                plain.append(self._decrypt())
                if self.ended:
                    break
        if not self.established and not self.ended:
            plain.append(self._decrypt())
        left = view[at:]
        self._kept = b"" if self.ended else left if len(left) >= _HEADER_BYTES else bytes(left)
        return b"".join(plain)

    def _decrypt(self) -> bytes:
        greeted = self.established
        plain = []
        try:
            if not greeted:
                self._object.do_handshake()
                self.established = True
            while chunk := self._object.read(_RECORD_BYTES):
                plain.append(chunk)
                if not (self._incoming.pending or self._object.pending()):
                    return b"".join(plain)  # to read on would raise, and that costs a lot
            self.ended = True  # an empty read is the peer's close_notify
        except ssl.SSLWantReadError:
            if greeted:
                self._count_silent()
        except ssl.SSLCertVerificationError as error:
            self.error = error.verify_message
            self.ended = True
        except ssl.SSLError as error:
            self.error = error.reason or str(error)
            self.ended = True
        return b"".join(plain)

    def _count_silent(self) -> None:
        now = monotonic()
        if now - self._since > _WITHIN_S:
            self._silent, self._since = 0, now
        self._silent += 1
        if self._silent > _MOST_SILENT:
            self.error = "too many records that say nothing"
            self.ended = True

    def encrypt(self, data: bytes | memoryview) -> bytes:
        if len(data) <= _PIECE_BYTES:
            return self._encrypt(data)
        return b"".join([self._encrypt(piece) for piece in _pieces(data)])

    def _encrypt(self, data: bytes | memoryview) -> bytes:
        self._object.write(data)
        return self.pending_output()

    def pending_output(self) -> bytes:
        return self._outgoing.read()


def _pieces(data: bytes | memoryview) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + _PIECE_BYTES] for at in range(0, len(view), _PIECE_BYTES))


def _record_bytes(data: bytes | memoryview, at: int) -> int:
    """How long the record is that begins there, its header included. What is none is for OpenSSL to
    refuse, whatever else is to come."""
    size = _HEADER_BYTES + (data[at + 3] << 8 | data[at + 4])
    if data[at + 1] == 3 and size <= _LONGEST_BYTES:
        return size
    return min(len(data) - at, _LONGEST_BYTES)
