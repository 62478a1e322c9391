# cython: language_level=3
"""The compiled twins: see the pure function of each one's name for what it promises.

No byte is read before it was held against the size, and offsets are never added up past it.
"""

from collections import deque
from socket import SHUT_WR

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport strerror

ctypedef const unsigned char* Bytes

cdef enum:
    MAX_PAYLOAD_BYTES = 0xFFFFFF
    MORE_RESULTS_EXISTS = 1 << 3
    CURSOR_EXISTS = 1 << 6
    OLD_END_BYTES = 9
    MOST_COLUMNS = 0xFA


cdef inline Py_ssize_t payload_bytes(Bytes data, Py_ssize_t at) noexcept:
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16


cdef inline Py_ssize_t behind(Bytes data, Py_ssize_t size, Py_ssize_t at) noexcept:
    """Where the packet at an offset ends; -1 unless it is whole and a byte follows its header."""
    if size - at < 5 or payload_bytes(data, at) > size - at - 4:
        return -1
    return at + 4 + payload_bytes(data, at)


cdef inline Py_ssize_t behind_number(Bytes data, Py_ssize_t size, Py_ssize_t at) noexcept:
    """Where the length-encoded number at an offset ends, or -1."""
    cdef int width
    if at < 0 or at >= size or data[at] == 0xFB or data[at] == 0xFF:
        return -1
    width = 1 if data[at] < 0xFB else 3 if data[at] == 0xFC else 4 if data[at] == 0xFD else 9
    return at + width if size - at >= width else -1


cdef inline int number(Bytes data, Py_ssize_t at) noexcept:
    return data[at] | data[at + 1] << 8


cdef Py_ssize_t walk_rows(
    Bytes data, Py_ssize_t size, Py_ssize_t* at, Py_ssize_t end_bytes
) noexcept:
    cdef Py_ssize_t rows = 0, end, length
    while True:
        end = behind(data, size, at[0])
        if end < 0:
            return rows
        length = end - at[0] - 4
        if data[at[0] + 4] == 0xFF or (data[at[0] + 4] == 0xFE and length < end_bytes):
            return rows
        if length == MAX_PAYLOAD_BYTES:
            return rows
        rows += 1
        at[0] = end


cdef object ended(
    Bytes data, Py_ssize_t size, int columns, Py_ssize_t rows, Py_ssize_t at
):
    cdef Py_ssize_t flags_at = behind_number(data, size, behind_number(data, size, at + 1))
    if flags_at < 0 or size - flags_at < 4 or number(data, flags_at) & MORE_RESULTS_EXISTS:
        return None
    return number(data, flags_at), number(data, flags_at + 2), columns, rows, -1, flags_at


def scan(bytes data not None, *, bint deprecate_eof):
    """See `sqlcache.mysql.scan`."""
    cdef Bytes start = <Bytes>PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t end_bytes = MAX_PAYLOAD_BYTES if deprecate_eof else OLD_END_BYTES
    cdef Py_ssize_t at = behind(start, size, 0), rows, end, behind_definitions = -1
    cdef int columns, _
    if at < 0:
        return None
    columns = start[4]
    if columns == 0:
        return ended(start, size, 0, 0, 4) if at == size else None
    if columns > MOST_COLUMNS:
        return None
    for _ in range(columns):
        at = behind(start, size, at)
        if at < 0:
            return None
    if not deprecate_eof:
        end = behind(start, size, at)
        if end != at + 9 or start[at + 4] != 0xFE:
            return None
        behind_definitions = at + 7
        if start[behind_definitions] & (CURSOR_EXISTS | MORE_RESULTS_EXISTS):
            return None
        at = end
    rows = walk_rows(start, size, &at, end_bytes)
    end = behind(start, size, at)
    if end != size or start[at + 4] != 0xFE or end - at - 4 >= end_bytes:
        return None
    if deprecate_eof:
        return ended(start, size, columns, rows, at + 4)
    if size - at < 9 or number(start, at + 7) & MORE_RESULTS_EXISTS:
        return None
    return number(start, at + 7), number(start, at + 5), columns, rows, behind_definitions, at + 7


def step_over_rows(bytes data not None, Py_ssize_t at, Py_ssize_t end_bytes):
    """See `sqlcache.mysql.scan`."""
    cdef Py_ssize_t rows
    if at < 0:
        raise ValueError("an offset is not negative")
    rows = walk_rows(<Bytes>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &at, end_bytes)
    return rows, at


cdef enum:
    LONGEST = 4096
    NUMBER = 1
    STRING = 2

# What a byte of a text is, outside of literals; one that is nothing is for the lexer.
cdef enum:
    PLAIN = 1
    WORD = 2
    DIGIT = 4
    QUOTE = 8
    BACKTICK = 16
    DOT = 32

cdef unsigned char KINDS[256]


cdef void set_kinds():
    cdef int byte
    for byte in range(256):
        KINDS[byte] = PLAIN if byte in b"\t\n\r" or 0x20 <= byte <= 0x7E else 0
    for byte in b"\"#@\\?;${}[]~":
        KINDS[byte] = 0
    for byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_":
        KINDS[byte] = WORD
    for byte in b"0123456789":
        KINDS[byte] = DIGIT
    KINDS[c"'"] = QUOTE
    KINDS[c"`"] = BACKTICK
    KINDS[c"."] = DOT

set_kinds()


cdef inline Py_ssize_t behind_digits(Bytes text, Py_ssize_t size, Py_ssize_t at) noexcept:
    while at < size and KINDS[text[at]] == DIGIT:
        at += 1
    return at


cdef inline Py_ssize_t behind_string(Bytes text, Py_ssize_t size, Py_ssize_t at) noexcept:
    """Where the string that opens at an offset ends; -1 if nowhere, or if a backslash is in it."""
    while True:
        at += 1
        if at >= size or text[at] == c"\\":
            return -1
        if text[at] == c"'":
            at += 1
            if at >= size or text[at] != c"'":
                return at


cdef inline Py_ssize_t behind_name(Bytes text, Py_ssize_t size, Py_ssize_t at) noexcept:
    """Where the name that opens at an offset with a backtick ends, or -1."""
    cdef Py_ssize_t start = at + 1
    at = start
    while at < size and KINDS[text[at]] & (WORD | DIGIT):
        at += 1
    return at + 1 if start < at < size and KINDS[text[at]] == BACKTICK else -1


def without_literals(bytes text not None):
    """See `sqlcache.sql.shapes`."""
    cdef Bytes start = <Bytes>PyBytes_AS_STRING(text)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text), at = 0, end, shaped = 0, told = 0
    cdef unsigned char shape[LONGEST]
    cdef unsigned char literals[2 * LONGEST]  # with a comma each
    cdef unsigned char kind, before = 0
    cdef bint is_ascii = True, is_literal
    if size > LONGEST:
        return None
    while at < size:
        kind = KINDS[start[at]]
        is_literal = False
        end = at + 1
        if kind == PLAIN:
            if end < size and (
                (start[at] == c"-" and start[end] == c"-")
                or (start[at] == c"/" and start[end] == c"*")
            ):
                return None
        elif kind == DIGIT:
            if not before & (WORD | DIGIT | DOT | QUOTE | BACKTICK):
                end = behind_digits(start, size, end)
                if end < size and KINDS[start[end]] == DOT:
                    end = behind_digits(start, size, end + 1)
                is_literal = end == size or KINDS[start[end]] & PLAIN
        elif kind == QUOTE:
            if before & (WORD | DIGIT | QUOTE | BACKTICK):
                return None
            end = behind_string(start, size, at)
            if end < 0:
                return None
            is_literal = True
        elif kind == BACKTICK:
            end = behind_name(start, size, at)
            if end < 0:
                return None
        elif kind == 0:
            return None
        if is_literal:
            if told:
                literals[told] = c","
                told += 1
            shape[shaped] = STRING if kind == QUOTE else NUMBER
            shaped += 1
            while at < end:
                is_ascii = is_ascii and start[at] < 0x80
                literals[told] = start[at]
                told += 1
                at += 1
        else:
            while at < end:
                shape[shaped] = start[at]
                shaped += 1
                at += 1
        before = KINDS[start[at - 1]]
    found = PyBytes_FromStringAndSize(<char*>literals, told)
    if not is_ascii:
        try:
            found.decode()
        except UnicodeDecodeError:
            return None
    return PyBytes_FromStringAndSize(<char*>shape, shaped), found


cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int, void*, size_t, int)
    ssize_t c_send "send"(int, const void*, size_t, int)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef enum:
    READ_BYTES = 262144  # once for all, not anew each time
    READS = 4

cdef char READ[READ_BYTES]  # taken out of before anything else runs


cdef inline bint is_for_later(int error) noexcept:
    return error == EAGAIN or error == EINTR


cdef object os_error(int error):
    return OSError(error, strerror(error).decode())


cdef class SocketTransport:
    """See `sqlcache.mysql.transport`."""

    cdef readonly object socket
    cdef public bint hears_out
    cdef object _loop, _protocol, _received, _pending
    cdef int _fd
    cdef Py_ssize_t _pending_bytes, _sent, _high
    cdef bint _paused, _reading, _wrote, _eof, _closing, _ended, _has_last_words

    def __init__(self, loop, sock, protocol):
        self._loop = loop
        self.socket = sock
        self._fd = sock.fileno()
        self._protocol = protocol
        self._received = protocol.data_received
        self._pending = deque()
        self._high = 65_536

    def detach(self):
        self._has_last_words = False
        self._stop()
        self._ended = self._closing = True
        handed = self.socket.dup()
        self.socket.close()
        return handed

    def set_protocol(self, protocol):
        self._protocol = protocol
        self._received = protocol.data_received

    def set_write_buffer_limits(self, Py_ssize_t high):
        self._high = high

    def get_write_buffer_size(self):
        return self._pending_bytes

    def is_closing(self):
        return self._closing

    def pause_reading(self):
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.socket)

    def resume_reading(self):
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.add_reader(self.socket, self._read)

    def write(self, data not None):
        cdef Py_ssize_t size = len(data), sent = 0
        self._wrote = True
        if self._closing or self._eof or not size:
            return
        if not self._pending:
            sent = self._send(data, 0)
            if sent == size:
                return
            if sent < 0:
                return
            self._sent = sent
            self._loop.add_writer(self.socket, self._write)
        self._pending.append(data)
        self._pending_bytes += size - sent
        if self._pending_bytes > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def write_eof(self):
        if not self._eof and not self._closing:
            self._eof = True
            if not self._pending:
                self._shut()

    def close(self):
        self._has_last_words = False
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self._pending:
            self._end(None)

    def abort(self):
        self._has_last_words = False
        self._end(None)

    def _read(self):
        cdef Py_ssize_t size
        cdef int _
        for _ in range(READS):
            if not self._reading:
                return
            size = c_recv(self._fd, READ, READ_BYTES, MSG_DONTWAIT)
            if size < 0:
                if not is_for_later(errno):
                    self._end(os_error(errno))
                return
            self._wrote = False
            self._receive(size)
            if self._wrote or not size:
                return
        self._loop.call_soon(self._read)

    cdef _receive(self, Py_ssize_t size):
        try:
            if size:
                self._received(PyBytes_FromStringAndSize(READ, size))
            elif not self._protocol.eof_received():
                self.close()
            else:
                self.pause_reading()
        except Exception as error:
            self._end(error)
            raise

    def _write(self):
        cdef Py_ssize_t sent
        while self._pending:
            first = self._pending[0]
            sent = self._send(first, self._sent)
            if sent < 0:
                return
            self._pending_bytes -= sent
            self._sent += sent
            if self._sent < len(first):
                break
            self._pending.popleft()
            self._sent = 0
        if self._paused and self._pending_bytes <= self._high // 4:
            self._paused = False
            self._protocol.resume_writing()
        if not self._pending:
            self._written()

    cdef Py_ssize_t _send(self, data, Py_ssize_t at) except -2:
        """How much the kernel took, perhaps nothing; -1 where the connection has ended."""
        cdef Py_buffer view
        cdef Py_ssize_t sent
        cdef int error
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        sent = c_send(self._fd, <char*>view.buf + at, view.len - at, MSG_DONTWAIT | MSG_NOSIGNAL)
        error = errno
        PyBuffer_Release(&view)
        if sent >= 0:
            return sent
        if is_for_later(error):
            return 0
        self._has_last_words = self.hears_out and self._reading
        self._end(os_error(error))
        return -1

    cdef _hear_out(self):
        cdef Py_ssize_t size
        cdef int _
        for _ in range(READS):
            if not self._has_last_words:
                return
            size = c_recv(self._fd, READ, READ_BYTES, MSG_DONTWAIT)
            if size <= 0:
                return
            self._received(PyBytes_FromStringAndSize(READ, size))

    cdef _written(self):
        self._loop.remove_writer(self.socket)
        if self._closing:
            self._end(None)
        elif self._eof:
            self._shut()

    cdef _shut(self):
        try:
            self.socket.shutdown(SHUT_WR)
        except OSError as error:
            self._end(error)

    cdef _end(self, error):
        if self._ended:
            return
        self._stop()
        self._ended = self._closing = True
        self._loop.call_soon(self._lost, error)

    cdef _stop(self):
        self.pause_reading()
        if self._pending:
            self._loop.remove_writer(self.socket)
            self._pending.clear()
            self._pending_bytes = 0

    def _lost(self, error):
        try:
            self._hear_out()
        finally:
            self._tell_of_end(error)

    cdef _tell_of_end(self, error):
        try:
            self._protocol.connection_lost(error)
        finally:
            self._received = self._protocol = None
            self.socket.close()
