"""Log lines: one a change of state, on standard error, in logfmt or as JSON.

- Calls write `log.info("words of the event key=%s", value)`. The words are the line's `event`, each
  key that follows them is a field, and a traceback is the field `traceback`.
- One record is one line, whatever is in it; also one of a library, a warning, or an exception that
  nobody caught. In logfmt a value that is not plain is quoted, with JSON's escapes.
- They never hold literals of statements or credentials. What others quote may be either, so it is
  taken out: of their messages, and of what their exceptions say. What can be counted is a metric.
- A client cannot write as much as it likes: of a value that is long the begin is told.
- Nothing waits for a line to be taken: rather it is lost.
"""

import json
import logging
import math
import os
import re
import select
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlcache.errors import CacheUnavailable, ConfigError, UpstreamError
from sqlcache.process.events import Events, abridged

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

log = logging.getLogger(__name__)

Fields = dict[str, Any]

RESERVED: Final = ("time", "level", "part", "pid", "event", "traceback")
"""Fields of every line: no call may have its own of such a name."""

_LONGEST: Final = 10_000
"""Characters of a field: others may have chosen what it says. A list of tags may well be long."""
_OURS: Final = "sqlcache"
_CONVERSION: Final = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
_FIELDS: Final = re.compile(r"(?:(?:^|\s)[a-z_]+=(?:\"[^\"]*\"|\S+))+$")
_FIELD: Final = re.compile(r"([a-z_]+)=(?:\"([^\"]*)\"|(\S+))")
_PLAIN: Final = re.compile(r"[!#-<>-\[\]-~]+")
_QUOTED: Final = re.compile(
    r"""(?<![A-Za-z0-9])[bru]?(['"])(?:\\.|(?!\1).)*(?:\1|$)""", re.DOTALL | re.IGNORECASE
)
_WITHOUT_BLANKS: Final = re.compile(r"\S+")
_OF_NO_STATEMENT: Final = (CacheUnavailable, ConfigError, OSError, UpstreamError)
_QUOTES_WITHOUT_MARKS: Final = "sqlglot"
"""The library whose complaints show statements, and underline instead of quoting."""


def fields_of(record: logging.LogRecord) -> Fields:
    """What a record says: its event, and the fields that its call named; of long ones the begin."""
    return {
        key: abridged(value, _LONGEST) if isinstance(value, str) else value
        for key, value in _fields_of(record).items()
    }


def _fields_of(record: logging.LogRecord) -> Fields:
    said: Fields = {"event": ""}
    ours = record.name.partition(".")[0] == _OURS
    if not ours:
        return {"event": without_quotes(record.getMessage())}
    template, arguments = str(record.msg), record.args or ()
    found = _FIELDS.search(template)
    words = template[: found.start()] if found else template
    if not isinstance(arguments, tuple):  # one mapping, for names in the text
        return {"event": record.getMessage()}
    taken = _wanted(words)
    said["event"] = words % arguments[:taken] if arguments else words
    for match in _FIELD.finditer(found[0] if found else ""):
        key, value = match[1], match[2] if match[3] is None else match[3]
        wanted = _wanted(value)
        own, taken = arguments[taken : taken + wanted], taken + wanted
        if value in ("%s", "%d") and _is_number(own[0]):
            said[key] = own[0]
        else:
            said[key] = value % own if arguments else value
    if taken != len(arguments):
        raise TypeError("not all arguments are named in the text")
    return said


def _wanted(template: str) -> int:
    """How many arguments a part of a template takes."""
    return sum(found != "%%" for found in _CONVERSION.findall(template))


def _is_number(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def without_quotes(text: str) -> str:
    """`text` less what it quotes and the logins of URLs: these may be what nobody is to see."""
    return _WITHOUT_BLANKS.sub(_without_login, _QUOTED.sub("'***'", text))


def _without_login(word: re.Match[str]) -> str:
    begin, slashes, url = word[0].partition("//")
    _, at, rest = url.rpartition("@")
    return f"{begin}{slashes}***@{rest}" if slashes and at else word[0]


def told(error: BaseException) -> str:
    """An exception's traceback, with those of its causes before it."""
    return "".join(_tell(error, set())).rstrip("\n")


def _tell(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    context = None if error.__suppress_context__ else error.__context__
    before = error.__cause__ or context
    if before is not None and id(before) not in seen:
        yield from _tell(before, seen)
        yield "which led to:\n"
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    says = _says(error)
    yield f"{name}: {says}\n" if says else f"{name}\n"
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _tell(each, seen)


def _says(error: BaseException) -> str:
    if type(error).__module__.partition(".")[0] == _QUOTES_WITHOUT_MARKS:
        return "***"
    try:
        says = str(error)
    except Exception:
        return "***"
    shown = says if isinstance(error, _OF_NO_STATEMENT) else without_quotes(says)
    return abridged(shown, _LONGEST)


def logfmt(fields: Mapping[str, object]) -> str:
    """The fields as `key=value`, each on the same line."""
    return " ".join(f"{key}={_logfmt_value(value)}" for key, value in fields.items())


def _logfmt_value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


class _Formatter(logging.Formatter):
    """Makes lines of records, and raises nothing: a call that is wrong still says what it can."""

    def __init__(self, form: str) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%S%z")
        self._render = json.dumps if form == "json" else logfmt

    def format(self, record: logging.LogRecord) -> str:
        fields: Fields = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname.lower(),
            "part": record.name,
            "pid": record.process,
        }
        try:
            fields |= fields_of(record)
        except Exception as wrong:
            words = abridged(without_quotes(str(record.msg)), _LONGEST)
            fields |= {"event": words, "unsaid": type(wrong).__name__}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["traceback"] = told(error)
        return self._render(fields)


class _Quiet(logging.Filter):
    """Keeps out what shows statements."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] != _QUOTES_WITHOUT_MARKS


class _Lines(logging.StreamHandler[Any]):
    """Writes lines, if nobody has to wait for that: who reads them may have stopped, and the event
    loop goes on. Those that are lost so are counted in one that follows when there is room."""

    _lost = 0
    _cut = False  # the last line has no end

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if self._lost:
                line = self.format(_of_lost(self._lost)) + "\n" + line
            written = self._write(line)
        except RecursionError:
            raise
        except Exception:  # as where the disk is full: whom should it be told?
            written = False
        self._lost = 0 if written else self._lost + 1

    def _write(self, line: str) -> bool:
        """Whether all of it is written."""
        data = ("\n" * self._cut + line + "\n").encode("utf-8", "backslashreplace")
        file, at = self.stream.fileno(), 0
        poll = select.poll()
        poll.register(file, select.POLLOUT)
        while at < len(data):
            if not poll.poll(0):
                return False
            at += os.write(file, data[at : at + select.PIPE_BUF])
            self._cut = at < len(data)
        return True


def _of_lost(count: int) -> logging.LogRecord:
    told = "lines lost, for who reads them did not keep up count=%d"
    return log.makeRecord(log.name, logging.WARNING, __file__, 0, told, (count,), None)


_handler: Final = _Lines()
EVENTS: Final = Events(fields_of)
"""The last lines of this process, once it is configured."""


def configure(level: str, form: Literal["logfmt", "json"] = "logfmt") -> None:
    """Sends this process's log lines of `level` and above to standard error, in that form.

    For a process that is sqlcache's own. Call it before anything is logged, and again when the
    settings `log.level` and `log.format`, which these are, have changed.
    """
    root = logging.getLogger()
    if _handler not in root.handlers:
        _handler.setStream(sys.stderr)
        _handler.addFilter(_Quiet())
        root.addHandler(_handler)
        logging.captureWarnings(True)
        sys.excepthook = _on_exception
        sys.unraisablehook = _on_unraisable
        threading.excepthook = _on_thread
    _handler.setFormatter(_Formatter(form))
    number = logging.getLevelNamesMapping()[level.upper()]
    _handler.setLevel(number)
    root.setLevel(number)
    own = logging.getLogger(_OURS)
    own.setLevel(min(number, EVENTS.level))
    own.addHandler(EVENTS)


def _on_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    log.critical("the process ends by a fault of its own", exc_info=(kind, error, trace))


def _on_thread(arguments: threading.ExceptHookArgs) -> None:
    error = arguments.exc_value
    if error is not None:
        log.error("a thread failed", exc_info=error)


def _on_unraisable(arguments: "UnraisableHookArgs") -> None:
    error = arguments.exc_value
    if error is not None:
        log.error("an exception was not handled", exc_info=error)
