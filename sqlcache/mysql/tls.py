"""TLS over memory: what it encrypts and decrypts comes and goes some other way."""

import ssl
from collections.abc import Iterator

_TLS_RECORD_BYTES = 16_384  # OpenSSL reads one record at a time
_PIECE_BYTES = 65_536  # put into a buffer at once: it stays as large as it has ever been


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
        self.established = False
        self.ended = False
        self.error = ""

    def decrypt(self, data: bytes) -> bytes:
        if len(data) <= _PIECE_BYTES:
            return self._decrypt(data)
        plain = []
        for piece in _pieces(data):
            plain.append(self._decrypt(piece))
            if self.ended:
                break
        return b"".join(plain)

    def _decrypt(self, data: bytes | memoryview) -> bytes:
        self._incoming.write(data)
        plain = []
        try:
            if not self.established:
                self._object.do_handshake()
                self.established = True
            while chunk := self._object.read(_TLS_RECORD_BYTES):
                plain.append(chunk)
                if not (self._incoming.pending or self._object.pending()):
                    return b"".join(plain)  # to read on would raise, and that costs a lot
            self.ended = True  # an empty read is the peer's close_notify
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            self.error = error.verify_message
            self.ended = True
        except ssl.SSLError as error:
            self.error = error.reason or str(error)
            self.ended = True
        return b"".join(plain)

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
