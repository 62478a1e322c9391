"""`sqlcache init`: the files that a new installation begins with.

- `sqlcache.toml`, with what the flags said and a line on each setting; `sqlcache.sql`, which makes
  the service account; `sqlcache.service`, a systemd unit for the two.
- What holds the password is readable by its owner alone. It is made here where nobody gave one.
- Where one of them is there already, none is written, unless that is forced.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pymysql.converters import escape_string

from sqlcache.commands.replaced import replaced
from sqlcache.commands.toml import assignment
from sqlcache.errors import ConfigError
from sqlcache.settings import HostPort, MySQLUrl, Settings
from sqlcache.settings.sources import load
from sqlcache.sql.catalog_loader.server import NEEDED_RIGHTS

_FOR_ALL: Final = 0o644
_FOR_THE_OWNER: Final = 0o600
_ONE_OF_EACH_KIND: Final = ".Aa1"
"""What MySQL's validate_password wants in a password, and chance may leave out."""
_COMMENT_COLUMNS: Final = 98
_HERE: Final = ("127.0.0.1", "localhost", "::1")
_HIDDEN_FROM_UNITS: Final = ("/home/", "/root/", "/run/user/")

_SHOWN: Final[tuple[tuple[str, object], ...]] = (
    ("proxy.workers", 1),
    ("proxy.max_connections", 10_000),
    ("memcached.prefix", "sqlcache"),
    ("cache.ttl_s", 3600),
    ("cache.when_tags_unreachable", "availability"),
    ("admin.token", "a secret of your own"),
    ("log.level", "info"),
    ("log.format", "logfmt"),
)
"""What stands in the file as a comment, for it is the default or an example."""

_RULES: Final = """
# How some answers may age, or that they are not cached: any number of rules like this one, which
# lets those that depend on one table be a second behind a write.
#[[rules]]
#table = "shop.orders"
#max_staleness_ms = 1000
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the flags of `init` say; None and () are what they do not speak of."""

    upstream: str | None = None
    user: str | None = None
    password_file: Path | None = None
    listen: str | None = None
    memcached: tuple[str, ...] = ()
    admin: str | None = None


def run(wanted: Wanted, folder: Path, *, force: bool) -> int:
    """Writes the files and says what to do with them; returns the process's exit code.

    Raises: ConfigError for what is wrong with the flags, or files that are there already.
    """
    folder = Path(os.path.abspath(folder))
    password_file = wanted.password_file and Path(os.path.abspath(wanted.password_file))
    settings, password = _settings(wanted, password_file)
    secret = _FOR_ALL if password_file else _FOR_THE_OWNER
    files = {
        folder / "sqlcache.toml": (_toml(settings, password, password_file), secret),
        folder / "sqlcache.sql": (_sql(settings, password), _FOR_THE_OWNER),
        folder / "sqlcache.service": (_unit(folder, password_file), _FOR_ALL),
    }
    there = [file for file in files if os.path.lexists(file)]
    if there and not force:
        raise ConfigError("\n".join(f"{file}: is there; --force overwrites it" for file in there))
    _write(folder, {replaced(file): written for file, written in files.items()}, force=force)
    print("\n".join(_what_next(settings, *files)))
    return 0


def _settings(wanted: Wanted, password_file: Path | None) -> tuple[Settings, str]:
    """The settings, without what is secret, and the password. Raises: ConfigError."""
    upstream = wanted.upstream or "127.0.0.1:3306"
    if "://" not in upstream and "@" in upstream:  # which is not shown, for a password may be in it
        raise ConfigError(
            "--upstream: expected HOST:PORT, or a URL, mysql://USER:PASSWORD@HOST:PORT; what was"
            " given names a user and does not begin with mysql://"
        )
    if "://" not in upstream:
        upstream = f"mysql://{quote(wanted.user or 'sqlcache', safe='')}@{upstream}"
    elif wanted.user is not None:
        raise ConfigError(
            f"--user = {wanted.user}: expected the user in --upstream, which is a URL, or an"
            " --upstream of HOST:PORT"
        )
    flags = {
        "upstream": upstream,
        "listen": wanted.listen,
        "memcached": list(wanted.memcached) or ["127.0.0.1:11211"],
        "admin": wanted.admin or "127.0.0.1:9307",
    }
    settings = load(Path(os.devnull), {}, flags).settings
    given = settings.upstream.url.password
    if password_file is None:
        return settings, given or secrets.token_urlsafe(18) + _ONE_OF_EACH_KIND
    if given:
        raise ConfigError("--password-file: expected it, or a password in --upstream, not both")
    try:
        text = password_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"--password-file = {password_file}: cannot be read: {why}") from None
    return settings, text.removesuffix("\n").removesuffix("\r")


def _toml(settings: Settings, password: str, password_file: Path | None) -> str:
    url = settings.upstream.url
    login = quote(url.user, safe="")
    if password_file is None:
        login += f":{quote(password, safe='')}"
    socket = f"?unix_socket={quote(url.unix_socket)}" if url.unix_socket else ""
    given: dict[str, object] = {
        "proxy.listen": str(settings.proxy.listen),
        "upstream.url": f"mysql://{login}@{HostPort(url.host, url.port)}{socket}",
        "memcached.nodes": list(settings.memcached.nodes),
        "admin.listen": str(settings.admin.listen),
    }
    if password_file is not None:
        given["upstream.password_file"] = str(password_file)
    head = (
        "The settings of sqlcache. What is behind a # is a default, or an example. Names, units and"
        " limits of all there are: docs/settings.md. Before a restart: sqlcache check-config."
    )
    return "\n".join([*_comment(head), *_sections(given)]) + "\n" + _RULES


def _sections(given: Mapping[str, object]) -> Iterator[str]:
    shown = dict(_SHOWN)
    for section, info in Settings.model_fields.items():
        fields: Mapping[str, Any] = getattr(info.annotation, "model_fields", {})
        lines: list[str] = []
        for name, field in fields.items():
            path = f"{section}.{name}"
            if path in given:
                lines += [*_comment(field.description), assignment(name, given[path])]
            elif path in shown:
                lines += [*_comment(field.description), "#" + assignment(name, shown[path])]
        if lines:
            yield from ("", f"[{section}]", *lines)


def _comment(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, _COMMENT_COLUMNS, break_on_hyphens=False):
        yield f"# {line}"


def _sql(settings: Settings, password: str) -> str:
    account = f"'{escape_string(settings.upstream.user)}'@'%'"
    return f"""\
-- The account that sqlcache reads the catalog with: tables, views, triggers, foreign keys. Clients
-- never use it. To be run by an administrator, and deleted then, for it holds the password.
-- '%' is any host: name the one that sqlcache runs on where you can.
SET NAMES utf8mb4;
SET SESSION sql_mode = '';
CREATE USER {account} IDENTIFIED BY '{escape_string(password)}';
GRANT {", ".join(NEEDED_RIGHTS)} ON *.* TO {account};
-- With these it sees in the binary log what is written around sqlcache. Where nothing is, leave
-- them out, and set binlog.follow = "off".
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account};
-- It can do without this one; with it the tables of a writer that was killed are cached again
-- as soon as its write has ended.
-- GRANT PROCESS ON *.* TO {account};
"""


def _unit(folder: Path, password_file: Path | None) -> str:
    """The unit as it is published, for these files."""
    text = (
        resources.files("sqlcache.commands")
        .joinpath("sqlcache.service")
        .read_text(encoding="utf-8")
    )
    program = Path(sys.executable).with_name("sqlcache")
    command = [str(program)] if program.exists() else [sys.executable, "-m", "sqlcache"]
    changes = {"/opt/sqlcache/bin/sqlcache": " ".join(map(_quoted, command))}
    config = "/etc/sqlcache/sqlcache.toml"
    credential = "LoadCredential=mysql-password:/etc/sqlcache/mysql-password"
    if password_file is not None:
        changes[f"Environment=SQLCACHE_CONFIG={config}"] = "Environment=" + _quoted(
            f"SQLCACHE_CONFIG={folder / 'sqlcache.toml'}"
        )
        changes[credential] = f"LoadCredential=mysql-password:{_plain(password_file)}"
    else:
        changes[config] = "%d/sqlcache.toml"
        changes["Environment=SQLCACHE_UPSTREAM__PASSWORD_FILE=%d/mysql-password\n"] = ""
        changes[credential] = (
            "# It holds the password, so root alone reads it, and systemd hands over a copy at\n"
            "# the start: what is changed there wants a restart.\n"
            f"LoadCredential=sqlcache.toml:{_plain(folder / 'sqlcache.toml')}"
        )
        begin = text.index("# What applies without a restart")
        changes[text[begin : text.index("Environment=", begin)]] = ""
    for was, is_now in changes.items():
        assert text.count(was) == 1, was
        text = text.replace(was, is_now)
    return text


def _plain(path: Path) -> str:
    return str(path).replace("%", "%%")


def _quoted(word: str) -> str:
    """As systemd reads it for one word."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if set(escaped) & set(" \t'\"\\;") else escaped


def _write(folder: Path, files: Mapping[Path, tuple[str, int]], *, force: bool) -> None:
    """Each appears whole, and with its mode."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, (text, mode) in files.items():
            with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8") as temporary:
                temporary.write(text)
                temporary.flush()
                os.fchmod(temporary.fileno(), mode)
                if force:
                    file.unlink(missing_ok=True)
                os.link(temporary.name, file)
    except FileExistsError as error:
        if error.filename2 is None:
            raise ConfigError(f"--dir = {folder}: is a file") from None
        raise ConfigError(f"{error.filename2}: is there; --force overwrites it") from None
    except OSError as error:
        raise ConfigError(f"--dir = {folder}: cannot be written: {error.strerror}") from None


def _what_next(settings: Settings, toml: Path, sql: Path, unit: Path) -> Iterator[str]:
    config = shlex.quote(str(toml))
    yield f"written: {toml}, {sql.name}, {unit.name}"
    if sys.executable.startswith(_HIDDEN_FROM_UNITS):
        yield f"note: the unit's ProtectHome= hides {sys.executable}; install sqlcache elsewhere"
    yield f"1. {_as_administrator(settings.upstream.url, shlex.quote(str(sql)))}; delete it then"
    yield f"2. sqlcache check-config --connect --config {config}"
    yield (
        f"3. sqlcache serve --config {config}  # or for good: cp {shlex.quote(str(unit))}"
        " /etc/systemd/system/ && systemctl enable --now sqlcache"
    )


def _as_administrator(url: MySQLUrl, file: str) -> str:
    """A command that makes the account by this file, in whose comment is another one where either
    may be right.

    Root of a server that Debian has installed is whoever is root on the machine, by the socket: by
    TCP he is let in with no password.
    """
    by_socket = f" -S {shlex.quote(url.unix_socket)}" if url.unix_socket else ""
    by_tcp = f" -h {url.host}" + ("" if url.port == 3306 else f" -P {url.port}")
    with_password = f"mysql{by_socket or by_tcp} -u root -p < {file}"
    if by_socket or (url.host in _HERE and url.port == 3306):
        command = f"sudo mysql{by_socket} < {file}"
        return f"{command}  # the account (where root has a password: {with_password})"
    return f"{with_password}  # the account"
