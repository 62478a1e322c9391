"""What a setting can be: an address, a file, a time, the name of a table and so on.

What cannot be read as such is refused by a sentence that says what was expected.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf

DAY_S: Final = 86_400
_NO_NAME = re.compile(r"([`\"']).*\1|[*%]", re.DOTALL)


def _refuse_no_name(host: str) -> None:
    """Raises: ValueError where nobody can look it up: parts of a name have 1 to 63 letters."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"expected HOST:PORT, and {host!r} cannot be the name of a host") from None


@dataclass(frozen=True, slots=True)
class HostPort:
    """A TCP address. Port 0, for listening, means any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, usual: int = 3307) -> HostPort:
        """Reads `host:port` or `[ipv6]:port`. Raises: ValueError, with `usual` in its examples."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(
                f"expected HOST:PORT, an IPv6 address in brackets, as in [::1]:{usual}"
            )
        if not colon or not host or re.search(r"[\s/@\[\]]", host):
            raise ValueError(f"expected HOST:PORT, as in 127.0.0.1:{usual}")
        if "*" in host:
            raise ValueError(
                f"expected HOST:PORT; all addresses are 0.0.0.0:{usual}, or [::]:{usual}"
            )
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
            raise ValueError(f"expected a port from 0 to 65535 after the last colon, not {port!r}")
        if ":" not in host:
            _refuse_no_name(host)
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class MySQLUrl:
    """Where a MySQL server is and the account to use. Its text and `repr` hide the password."""

    user: str
    password: str = field(repr=False)
    host: str
    port: int
    unix_socket: str | None

    @classmethod
    def parse(cls, text: str) -> MySQLUrl:
        """Reads `mysql://USER:PASSWORD@HOST:PORT[?unix_socket=PATH]`; port 3306 if none is given.

        User and password are percent-decoded. Raises: ValueError, without the text.
        """
        form = "expected mysql://USER:PASSWORD@HOST:PORT"
        encode = "in user and password write @ / ? # as %40 %2F %3F %23"
        try:
            url = urlsplit(text.strip())
            port = 3306 if url.port is None else url.port
        except ValueError:
            raise ValueError(f"{form}; {encode}") from None
        if url.scheme != "mysql":
            raise ValueError(form)
        if not url.username:
            raise ValueError(f"{form}; it names no user")
        if not url.hostname:
            raise ValueError(f"{form}; it names no host; {encode}")
        if not port:
            raise ValueError(f"{form}; a server has a port from 1 to 65535, 3306 if none is given")
        options = parse_qs(url.query, keep_blank_values=True)
        sockets = options.pop("unix_socket", [])
        if url.path not in ("", "/") or url.fragment or options or len(sockets) > 1:
            raise ValueError(f"{form}, after which only ?unix_socket=PATH may follow; {encode}")
        return cls(
            user=unquote(url.username),
            password=unquote(url.password or ""),
            host=url.hostname,
            port=port,
            unix_socket=sockets[0] if sockets else None,
        )

    @property
    def address(self) -> str:
        """The server, for people: the socket's path or `host:port`."""
        return self.unix_socket or str(HostPort(self.host, self.port))

    def __str__(self) -> str:
        socket = f"?unix_socket={self.unix_socket}" if self.unix_socket else ""
        return f"mysql://{self.user}:***@{HostPort(self.host, self.port)}{socket}"


def _parse_host_port(value: object) -> object:
    if isinstance(value, HostPort):
        return value
    return HostPort.parse(value if isinstance(value, str) else "")


def _parse_mysql_url(value: object) -> object:
    if isinstance(value, MySQLUrl):
        return value
    return MySQLUrl.parse(value if isinstance(value, str) else "")


def _can_be_read(path: Path) -> Path:
    """Raises: ValueError where it is no file, or not ours to read."""
    try:
        if stat.S_ISREG(path.stat().st_mode):
            path.open("rb").close()
            return path
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # as in a folder that only root may enter
        raise ValueError(f"cannot be read: {error.strerror}") from None
    raise ValueError("expected the path of a file that exists")


def _parse_nodes(value: object) -> object:
    """A list, or one text with commas, as the environment has it; every address is checked."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError('expected a list of HOST:PORT, or ["memory"]')
    names = tuple(str(item).strip() for item in items)
    if not names:
        raise ValueError("expected at least one HOST:PORT, or memory")
    if "memory" in names:
        if len(names) > 1:
            raise ValueError("memory is the store of one process and cannot stand beside nodes")
        return names
    addresses = [HostPort.parse(name, 11_211) for name in names]
    if not all(each.port for each in addresses):
        raise ValueError("expected the port that the node listens on, which is never 0")
    if len({(_spelled(each.host), each.port) for each in addresses}) < len(addresses):
        raise ValueError("expected every node once")
    return tuple(map(str, addresses))


def _spelled(host: str) -> str:
    """The same for a host that is written in another way."""
    try:
        return str(ip_address(host))
    except ValueError:
        return host.lower().removesuffix(".")


def _are_plain(*names: str) -> bool:
    """Whether they are names as they are: in quotes, with spaces around or as wildcards they would
    be those of nothing."""
    return not any(name != name.strip() or _NO_NAME.fullmatch(name) for name in names)


def _parse_table(value: object) -> object:
    """SCHEMA.TABLE; names with dots in them cannot be given."""
    names = value.split(".") if isinstance(value, str) else []
    if len(names) != 2 or not all(names):
        raise ValueError("expected SCHEMA.TABLE, as in shop.orders")
    if not _are_plain(*names):
        raise ValueError(
            "expected SCHEMA.TABLE without quotes, wildcards or spaces around names, as in"
            " shop.orders"
        )
    return value


def _parse_schema(value: str) -> str:
    if not _are_plain(value):
        raise ValueError("expected a name without quotes, wildcards or spaces around it")
    return value


def _parse_routine(value: object) -> object:
    names = value.split(".") if isinstance(value, str) else []
    if len(names) not in (1, 2) or not all(names) or not _are_plain(*names):
        raise ValueError(
            "expected SCHEMA.NAME without quotes, as in shop.price, or NAME alone for a loadable"
            " function"
        )
    return value


def _parse_regex(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("expected a regular expression")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return value


Address = Annotated[InstanceOf[HostPort], BeforeValidator(_parse_host_port)]
UpstreamUrl = Annotated[InstanceOf[MySQLUrl], BeforeValidator(_parse_mysql_url)]
Nodes = Annotated[tuple[str, ...], BeforeValidator(_parse_nodes)]
File = Annotated[Path, AfterValidator(_can_be_read)]
Seconds = Annotated[float, Field(gt=0, le=DAY_S, allow_inf_nan=False)]
OrAuto = BeforeValidator(lambda value: None if value == "auto" else value)
"""Takes `auto`, which is None: then the number follows the machine, see `Settings.automatic`."""
Table = Annotated[str, BeforeValidator(_parse_table)]
Schema = Annotated[str, Field(min_length=1), AfterValidator(_parse_schema)]
RoutineName = Annotated[str, BeforeValidator(_parse_routine)]
Regex = Annotated[str, BeforeValidator(_parse_regex)]
