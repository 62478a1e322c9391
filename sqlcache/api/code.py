"""What stands for code in keys."""

import inspect
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from sqlcache.cache.keys import digest


@lru_cache(1_024)
def code_digest(code: CodeType) -> bytes:
    """The same for code that does the same, wherever it stands, in one version of Python."""
    return digest(_code(code))


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield code.co_exceptiontable
    variable = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    for count in (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, variable):
        yield b"%d" % count
    for names in (code.co_names, code.co_varnames, code.co_freevars):
        yield digest(name.encode() for name in names)
    for const in code.co_consts:
        yield code_digest(const) if isinstance(const, CodeType) else digest(_const(const))


def _const(const: object) -> Iterator[bytes]:
    yield type(const).__name__.encode()
    if isinstance(const, frozenset):  # in no order
        yield from sorted(digest(_const(each)) for each in const)
    elif isinstance(const, tuple):
        yield from (digest(_const(each)) for each in const)
    else:
        yield repr(const).encode()
