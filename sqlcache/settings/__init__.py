"""Every setting: its name, unit, limits and default. `sources` has where values come from.

- Names carry their units (`_s`, `_bytes`); a number of bytes may be given as `64MiB`, too.
- No message, `repr` or log line ever holds a password.
- Settings never change after they were loaded, others may take their place; a process that starts
  others hands them on as is.
"""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sqlcache.process import cgroup

DAY_S: Final = 86_400

LISTS: Final = ("rules", "routines")
"""Sections that may be given any number of times."""

_MOST_CONNECTIONS: Final = 1_000_000
_NEAR_BYTES: Final = 67_108_864
_MEMORY_BYTES: Final = 268_435_456
_LARGEST_ENTRY_SHARE: Final = 4
_STATEMENTS_BYTES: Final = 100_663_296
_LEAST_STATEMENTS_BYTES: Final = 1_048_576
_KEPT_BYTES: Final = 256 << 20
_PROCESS_BYTES: Final = 72_000_000
"""What a process takes that holds nothing yet; `make bench` measures it."""
_TRANSACTIONS_BYTES: Final = 64 << 20
_SIZE: Final = re.compile(r"([0-9]{1,12}) ?([KMG])iB")
_SHORTEST_SECRET: Final = 16
_SHORTEST_TOKEN: Final = 8
_TOKEN: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
"""What a header of HTTP can have, and keeps as it is."""


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
            port = url.port or 3306
        except ValueError:
            raise ValueError(f"{form}; {encode}") from None
        if url.scheme != "mysql":
            raise ValueError(form)
        if not url.username:
            raise ValueError(f"{form}; it names no user")
        if not url.hostname:
            raise ValueError(f"{form}; it names no host; {encode}")
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
    nodes = tuple(map(str, addresses))
    if len(set(nodes)) < len(nodes):
        raise ValueError("expected every node once")
    return nodes


Address = Annotated[InstanceOf[HostPort], BeforeValidator(_parse_host_port)]
UpstreamUrl = Annotated[InstanceOf[MySQLUrl], BeforeValidator(_parse_mysql_url)]
Nodes = Annotated[tuple[str, ...], BeforeValidator(_parse_nodes)]
File = Annotated[Path, AfterValidator(_can_be_read)]
Seconds = Annotated[float, Field(gt=0, le=DAY_S, allow_inf_nan=False)]
OrAuto = BeforeValidator(lambda value: None if value == "auto" else value)
"""Takes `auto`, which is None: then the number follows the machine, see `Settings.automatic`."""


def _free_bytes(workers: int) -> int:
    """What all processes together may hold: the limit without what they take themselves, also the
    parent of several; where that is nearly all, a quarter of the limit."""
    limit = cgroup.memory_limit_bytes() or sys.maxsize
    processes = workers + (workers > 1)
    return max(limit - processes * _PROCESS_BYTES, limit // 4)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    SECRET_FILE: ClassVar[str] = ""
    """The setting that is a file whose content is taken when the settings are read, if any."""
    _secret: SecretStr | None = PrivateAttr(default=None)

    def differs(self, other: Self, name: str) -> bool:
        """Whether a setting is another one there; a secret's file also where its content is."""
        if getattr(self, name) != getattr(other, name):
            return True
        is_file = name == self.SECRET_FILE and getattr(self, name) is not None
        return is_file and self._secret != other._secret

    def _keep_secret(self, text: str | None) -> None:
        """Whoever is handed these settings goes by this one, whatever the file has by then."""
        self._secret = None if text is None else SecretStr(text)

    def _kept_secret(self) -> str | None:
        return None if self._secret is None else self._secret.get_secret_value()

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Else `near_bytes = true` would be a byte."""
        if isinstance(value, bool) and info.field_name is not None:
            kinds = _kinds_of(cls.model_fields[info.field_name].annotation)
            if not kinds.isdisjoint((int, float)):
                raise ValueError(f"expected a {'whole ' if int in kinds else ''}number")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _sizes_may_have_units(cls, value: object, info: ValidationInfo) -> object:
        """Takes `64MiB` for 67108864."""
        named = info.field_name is not None and info.field_name.endswith("_bytes")
        if named and isinstance(value, str) and (size := _SIZE.fullmatch(value.strip())):
            number, unit = size.groups()
            return int(number) << 10 * (1 + "KMG".index(unit))
        return value


def _kinds_of(annotation: Any) -> set[Any]:
    """The types that a value may have."""
    return {annotation, *get_args(annotation)}


def _together(certificate: Path | None, key: Path | None) -> None:
    if (certificate is None) != (key is None):
        raise ValueError("expected tls_certificate and tls_key together, or neither")


def _secret(name: str, given: SecretStr | None, file: Path | None, *, shortest: int) -> str | None:
    """The text of a setting, or of the file that it is given as; None where there is neither.
    Raises: ValueError."""
    if file is None:
        return None if given is None else given.get_secret_value()
    if given is not None:
        raise ValueError(f"expected {name}, or {name}_file, not both")
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"expected in {name}_file a text of ASCII that can be read") from None
    if len(text) < shortest:
        raise ValueError(f"expected at least {shortest} characters in {name}_file")
    return text


class ProxySettings(_Section):
    """The MySQL door."""

    listen: Address = Field(
        default=HostPort("127.0.0.1", 3307), description="Where MySQL clients connect."
    )
    workers: Annotated[int | None, OrAuto] = Field(
        default=1,
        ge=1,
        le=256,
        description="Processes that share the port; `auto`: one for each whole CPU that the machine"
        " has, or the container's quota allows.",
    )
    take_over: bool = Field(
        default=False,
        description="Whether it may listen where another sqlcache of the same user does, and share"
        " its connections until that one is stopped: an upgrade without a gap. Else it is refused.",
    )
    max_connections: int = Field(
        default=10_000,
        ge=1,
        le=_MOST_CONNECTIONS,
        description="Clients at once, of all workers together; others get MySQL's error 1040. In"
        " each worker no more than half as many as it may open files (the hard limit of"
        " `ulimit -n`, less 200).",
    )
    max_connections_per_user: int = Field(
        default=0,
        ge=0,
        le=_MOST_CONNECTIONS,
        description="Of these, sessions of one user, whatever host they come from; others get"
        " MySQL's error 1203 when MySQL has let them in. 0: no limit but that above.",
    )
    login_timeout_s: Seconds = Field(
        default=10.0,
        description="From a client's connect to its login's end, and for each change of its user;"
        " its first word is waited for 8 s at most, less than MySQL's `connect_timeout`.",
    )
    idle_timeout_s: float = Field(
        default=0.0,
        ge=0,
        le=DAY_S,
        description="A client that sends nothing for so long, or a fifth longer, also amid a"
        " statement, gets MySQL's error 4031 and its connection ends; an open transaction is rolled"
        " back, as by MySQL's `wait_timeout`. 0: never.",
    )
    drain_timeout_s: Seconds = Field(
        default=10.0,
        description="After SIGTERM: how long statements and transactions under way may go on.",
    )
    max_statement_bytes: int = Field(
        default=1_048_576,
        ge=1024,
        description="Longer statements are passed on without being read, as writes to everything.",
    )
    buffer_bytes: int = Field(
        default=262_144,
        ge=4096,
        le=1 << 30,
        description="Unsent bytes a connection may hold before its peer is made to wait.",
    )
    statements_bytes: Annotated[int | None, OrAuto] = Field(
        default=None,
        ge=1_048_576,
        description="What each process may remember of statements: their texts and analysis, those"
        " that clients prepared, and the tags of what they read. `auto`: 96 MiB, or for all workers"
        " together an eighth of what the container has left for them where that is less.",
    )
    transactions_bytes: Annotated[int | None, OrAuto] = Field(
        default=None,
        ge=0,
        description="What each process may remember of what open transactions have read in their"
        " snapshots, at most 4 MB of each, so that MySQL need not answer it again; 0: nothing."
        " `auto`: 64 MiB, or for all workers together a sixteenth of what the container has left"
        " for them where that is less.",
    )
    straight_path: bool = Field(
        default=True,
        description="Whether a statement that was planned before is served by its plan. Without it"
        " clients are answered the same, at up to ten times the cost: whether a difference stays"
        " then tells where to look for its cause.",
    )
    tls_certificate: File | None = Field(
        default=None,
        description="PEM certificate chain for clients that ask for TLS; none: see tls_auto.",
    )
    tls_key: File | None = Field(default=None, description="PEM private key of tls_certificate.")
    tls_auto: bool = Field(
        default=True,
        description="Without tls_certificate: one is made at the start, which no client can verify,"
        " as MySQL does. false: no TLS with clients then.",
    )
    tls_required: bool = Field(
        default=False, description="Clients without TLS are refused, with MySQL's error 3159."
    )

    @property
    def makes_certificate(self) -> bool:
        """Whether TLS with clients is by a certificate of sqlcache's own."""
        return self.tls_auto and self.tls_certificate is None

    @model_validator(mode="after")
    def _tls_is_complete(self) -> Self:
        _together(self.tls_certificate, self.tls_key)
        if self.tls_required and self.tls_certificate is None and not self.tls_auto:
            raise ValueError(
                "expected tls_certificate and tls_key, or tls_auto = true,"
                " where tls_required = true"
            )
        return self


class UpstreamSettings(_Section):
    """The MySQL server that has the data, and the account sqlcache reads its catalog with."""

    url: UpstreamUrl = Field(
        description="mysql://USER:PASSWORD@HOST:PORT, perhaps ?unix_socket=PATH; clients do not"
        " use this account, they log in as themselves."
    )
    password_file: File | None = Field(
        default=None,
        description="A file with the password, as Docker, Kubernetes and systemd mount secrets;"
        " then `url` has none. It is read again for each login, so the password may be changed.",
    )
    connect_timeout_s: Seconds = Field(
        default=5.0, description="For one connection to be accepted."
    )
    keepalive_s: Seconds = Field(
        default=30.0,
        description="A client's connection to MySQL is pinged after so long with nothing but hits,"
        " or in a wait for another's fill: MySQL's wait_timeout ends those that are idle, and"
        " should be longer than twice that. So should MariaDB's idle_transaction_timeout and"
        " idle_readonly_transaction_timeout be, where they are set: a shorter one may end a"
        " transaction in which the client asks for nothing but hits.",
    )
    data_set: str | None = Field(
        default=None,
        pattern=r"^[!-~]{1,64}$",
        description="A name for the data behind `url`, the same on every sqlcache, for servers that"
        " stand in for one another: answers are then shared by it, else by the server's own"
        " identity, and none that one server gave is another's.",
    )
    catalog_refresh_s: Seconds = Field(
        default=30.0, description="How often tables, views, triggers and keys are read again."
    )
    catalog_timeout_s: Seconds = Field(
        default=60.0,
        description="How long one such reading may take; what takes longer is given up, and tried"
        " again. It takes longer with more tables, and on MariaDB while a definition waits for its"
        " table.",
    )
    tls: Literal[
        "as-client", "disabled", "preferred", "required", "verify-ca", "verify-identity"
    ] = Field(
        default="as-client",
        description="When to speak TLS with MySQL. `as-client`: where the client's own connection"
        " has it, if the server offers it. The others are those of MySQL's clients: `disabled`;"
        " `preferred`, if the server offers it; `required`; `verify-ca`, and its certificate must"
        " be signed by tls_ca; `verify-identity`, and must name the host of `url`. sqlcache's own"
        " connection, and those of the Python API, take `as-client` for `preferred`.",
    )
    tls_ca: File | None = Field(
        default=None,
        description="PEM certificates that may sign the server's; none: those the system trusts."
        " With verify-ca and verify-identity.",
    )
    tls_certificate: File | None = Field(
        default=None, description="PEM certificate chain sqlcache shows to the server."
    )
    tls_key: File | None = Field(default=None, description="PEM private key of tls_certificate.")

    @model_validator(mode="after")
    def _password_is_given_once(self) -> Self:
        if self.password_file is not None and self.url.password:
            raise ValueError("expected a password in url, or password_file, not both")
        self.read_password()
        return self

    @model_validator(mode="after")
    def _tls_is_complete(self) -> Self:
        _together(self.tls_certificate, self.tls_key)
        if self.tls_ca is not None and not self.tls.startswith("verify-"):
            raise ValueError("expected tls = verify-ca or verify-identity where tls_ca is given")
        return self

    @property
    def host(self) -> str:
        return self.url.host

    @property
    def port(self) -> int:
        return self.url.port

    @property
    def user(self) -> str:
        return self.url.user

    def read_password(self) -> str:
        """As it is now, less a line's end behind it. Raises: ValueError."""
        if self.password_file is None:
            return self.url.password
        try:
            text = self.password_file.read_text(encoding="utf-8")
            return text.removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise ValueError(f"password_file cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError("expected UTF-8 in password_file") from None

    @property
    def unix_socket(self) -> str | None:
        return self.url.unix_socket


class MemcachedSettings(_Section):
    """The store: memcached nodes, or this process's own memory."""

    nodes: Nodes = Field(
        description='HOST:PORT of each memcached, the same on every sqlcache; or ["memory"].'
    )
    prefix: str = Field(
        default="sqlcache",
        pattern=r"^[!-~]{1,64}$",
        description="Starts every key: proxies share entries if and only if they share it.",
    )
    secret: SecretStr | None = Field(
        default=None,
        min_length=_SHORTEST_SECRET,
        description="Seals entries: what somebody without it stores there is not served. The same"
        " on every sqlcache that is to share entries.",
    )
    secret_file: File | None = Field(
        default=None,
        description="A file with the secret, as Docker and Kubernetes mount secrets. It is read at"
        " the start; another one wants a restart.",
    )
    timeout_s: Seconds = Field(
        default=0.25,
        description="For an answer, or while answers come for the next of them, up to a quarter of"
        " outage_s; later means bypass.",
    )
    connect_timeout_s: Seconds = Field(
        default=1.0,
        description="For a connection to a node. With `reconnect_max_s` it is how long a process"
        " may take to find a node that is back. A start waits so long for a node that is empty, as"
        " others may still have to tell it of their writes; a node that was away is used again so"
        " much later. That sum is to be the same for all processes.",
    )
    reconnect_min_s: Seconds = Field(
        default=0.05, description="First pause before a node is tried again."
    )
    reconnect_max_s: Seconds = Field(
        default=0.5, description="Longest such pause; each doubles the last."
    )
    outage_s: Seconds = Field(
        default=3.0,
        ge=2.0,  # a node that is silent for half of it is distrusted
        description="A node silent for longer is out: until then writes wait for it. The same for"
        " all processes.",
    )
    max_item_bytes: int = Field(
        default=1_000_000,
        ge=1024,
        description="Longest value to store in one item, below memcached's -I (1 MiB); longer"
        " entries are stored in parts.",
    )
    memory_bytes: Annotated[int | None, OrAuto] = Field(
        default=None,
        ge=1_048_576,
        description='With ["memory"]: what the store may hold. `auto`: 256 MiB, or half of what the'
        " container has left for it where that is less: of its limit, without 72 MB for the"
        " process.",
    )

    @property
    def in_memory(self) -> bool:
        return self.nodes == ("memory",)

    @property
    def addresses(self) -> tuple[HostPort, ...]:
        """The nodes to connect to; none with `memory`."""
        return () if self.in_memory else tuple(map(HostPort.parse, self.nodes))

    @model_validator(mode="after")
    def _pauses_grow(self) -> Self:
        if self.reconnect_min_s > self.reconnect_max_s:
            raise ValueError("expected reconnect_min_s to be at most reconnect_max_s")
        return self

    SECRET_FILE = "secret_file"

    @model_validator(mode="after")
    def _secret_can_be_read(self) -> Self:
        given = _secret("secret", self.secret, self.secret_file, shortest=_SHORTEST_SECRET)
        self._keep_secret(given)
        return self

    def read_secret(self) -> str | None:
        """The secret, as it was when the settings were read; None where there is none."""
        return self._kept_secret()


class CacheSettings(_Section):
    """What is kept, and for how long."""

    mode: Literal["on", "shadow", "off"] = Field(
        default="on",
        description="off: every statement is relayed, writes still bump. shadow: reads are looked"
        " up and answers stored, but MySQL answers them all, and it is counted what would have"
        " been hits, and what would have been wrong.",
    )
    verify_percent: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="Of so many of 100 hits outside transactions MySQL is asked as well, and its"
        " answer is the client's. One that differs though no write explains it is logged and"
        " counted, and its tables are forgotten.",
    )
    ttl_s: int = Field(
        default=3600,
        ge=1,
        le=30 * DAY_S,
        description="An entry's longest life; writes end it sooner.",
    )
    max_entry_bytes: int = Field(
        default=16_000_000,
        ge=1,
        description="Longer responses are not stored. With"
        ' `memcached.nodes = ["memory"]` none is that would take more than a quarter of'
        " `memcached.memory_bytes`.",
    )
    near_bytes: Annotated[int | None, OrAuto] = Field(
        default=None,
        ge=0,
        description="Entries kept in each process, too, so that a hit needs only its tags'"
        " versions from memcached; 0: none. One that would take more than a tenth of that is not"
        " kept. `auto`: 64 MiB, or for all workers together a quarter of what the container has"
        " left for them where that is less: of its limit, without 72 MB for each process. With"
        ' `memcached.nodes = ["memory"]` an eighth.',
    )
    row_tags: bool = Field(
        default=False,
        description="Where answers from single rows are forgotten again and again by writes to"
        " others, they are told apart by the value of the column that they ask for, and by columns"
        " that they do not read; a write that names its rows so, or sets only such columns,"
        " forgets no others. Off: every write to a table forgets all of its answers. Young: try it"
        " in shadow mode first.",
    )
    skip_unhit_stores: bool = Field(
        default=True,
        description="Where hardly any stored answer is hit of statements that differ in literals"
        " alone (less than 1 % of at least 50, after 5 minutes), 1 answer of 20 is stored from then"
        " on, until some of these are hit. Off: all are stored.",
    )
    compress_over_bytes: int = Field(
        default=0,
        ge=0,
        description="Entries longer than this, and of up to 32 MiB, are compressed; 0: none.",
    )
    lease_ttl_s: int = Field(
        default=10,
        ge=1,
        le=3600,
        description="How long the right to fill a missing key outlives its owner.",
    )
    lease_wait_s: float = Field(
        default=300.0,
        ge=0,
        le=3600,
        description="How long a reader waits at most for another's fill of its key, while that"
        " lives; in a transaction, which may hold what the fill waits for, at most 5.",
    )
    write_deadline_s: Seconds = Field(
        default=30.0,
        description="How long the mark of a write outlives the proxy that set it."
        " The same for all processes.",
    )
    read_lease_ms: float = Field(
        default=5.0,
        ge=0,
        le=1000,
        description="How long a process that is asked often may serve what memcached has said,"
        " without asking it again. The first write to such tables in a second is sent that much"
        " later, and a fifth, so that nothing is stale. The same for all processes; 0: not at all.",
    )
    when_tags_unreachable: Literal["availability", "consistency"] = Field(
        default="availability",
        description="A write whose tags cannot be reached: availability sends it and makes the bump"
        " later; consistency refuses it.",
    )


class BinlogSettings(_Section):
    """Writes made around sqlcache: MySQL's binary log tells of them. See [binlog.md](binlog.md)."""

    follow: Literal["off", "auto", "on"] = Field(
        default="auto",
        description="Whether one of all sqlcaches with the same memcached nodes reads the log as a"
        " replica does. `auto`: if the account of `upstream.url` and the server allow it, and a"
        " warning in the log says so where they do not; `on`: that they do not counts as lagging.",
    )
    max_lag_s: Seconds = Field(
        default=10.0,
        description="Who follows the log lags when it is so far behind, or when nobody has followed"
        " it for so long.",
    )
    when_lagging: Literal["serve", "bypass"] = Field(
        default="serve",
        description="Meanwhile: `serve` answers from the cache, `bypass` has MySQL answer all"
        " reads.",
    )
    catch_up_s: Seconds = Field(
        default=30.0,
        description="A process that starts uses what memcached remembers once the log has been"
        " read up to its end; what is not so far after that time is forgotten.",
    )


class AdminSettings(_Section):
    """The HTTP door: /live, /ready and /metrics for everyone, /api for operators."""

    listen: Address | None = Field(default=None, description="Where it listens; none: not at all.")
    token: SecretStr | None = Field(
        default=None,
        min_length=_SHORTEST_TOKEN,
        description="What /api/ wants as `Authorization: Bearer`. Without one it answers only where"
        " `listen` is an address of this machine alone, as 127.0.0.1 is.",
    )
    token_file: File | None = Field(
        default=None,
        description="A file with the token, as Docker and Kubernetes mount secrets. It is read at"
        " the start, and again by a reload.",
    )

    SECRET_FILE = "token_file"

    @model_validator(mode="after")
    def _token_can_be_sent(self) -> Self:
        token = _secret("token", self.token, self.token_file, shortest=_SHORTEST_TOKEN)
        if token is not None and not _TOKEN.fullmatch(token):
            raise ValueError("expected in token, or token_file, one line of printable ASCII")
        self._keep_secret(token)
        return self

    def read_token(self) -> str | None:
        """The token, as it was when the settings were read; None where there is none."""
        return self._kept_secret()


class LogSettings(_Section):
    """Log lines, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least important kind of line that is written."
    )
    format: Literal["logfmt", "json"] = Field(
        default="logfmt",
        description="What a line is: `key=value` with quotes where they are needed, or a JSON"
        " object.",
    )
    slow_miss_ms: float = Field(
        default=0,
        ge=0,
        le=DAY_S * 1000,
        description="Reads that MySQL answers, because they were missed or cannot be cached, have a"
        " line where they took longer: their shape, without literals, time, schema and reason. At"
        " most 10 lines a second in each process. 0 is none.",
    )


_NO_NAME = re.compile(r"([`\"']).*\1|[*%]", re.DOTALL)


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


Table = Annotated[str, BeforeValidator(_parse_table)]
Schema = Annotated[str, Field(min_length=1), AfterValidator(_parse_schema)]
RoutineName = Annotated[str, BeforeValidator(_parse_routine)]
Regex = Annotated[str, BeforeValidator(_parse_regex)]


class RuleSettings(_Section):
    """How some answers may age, or that they are not cached. `[[rules]]` may be given any number of
    times.

    A rule is about the reads that meet all of its conditions (`table` to `matches`); one without
    conditions is about all. Of each of the other settings, the first rule that gives it decides:
    put the special before the general. An answer from several tables gets the strictest of what
    each of them may have. See [caching-rules.md](caching-rules.md).
    """

    table: Table | None = Field(
        default=None,
        description="Condition: it depends on this table, as SCHEMA.TABLE without quotes; also"
        " through a view.",
    )
    schema_: Schema | None = Field(
        default=None,
        alias="schema",
        description="Condition: it depends on tables of this schema.",
    )
    user: str | None = Field(
        default=None, description="Condition: this user sends it, by the name of the login."
    )
    statement: str | None = Field(
        default=None,
        min_length=1,
        description="Condition: it is this statement, `?` standing for any literal or parameter;"
        " `sqlcache explain` shows a statement in this form.",
    )
    matches: Regex | None = Field(
        default=None,
        description="Condition: this regular expression is found in its text, as it was sent.",
    )
    off: bool | None = Field(default=None, description="true: do not cache it at all.")
    ttl_s: int | None = Field(
        default=None, ge=1, le=30 * DAY_S, description="Instead of `cache.ttl_s`."
    )
    max_staleness_ms: int | None = Field(
        default=None,
        ge=0,
        le=DAY_S * 1000,
        description="Versions seen less long ago are taken as read: an answer may be so much behind"
        " a write; 0 if no rule says more. Never in a transaction.",
    )
    stale_while_revalidate_s: float | None = Field(
        default=None,
        ge=0,
        le=DAY_S,
        description="While one client fetches what a write made outdated the others get the last"
        " answer, if it was stored less long ago; 0 if no rule says more. Never in a transaction.",
    )
    row_tags: bool | None = Field(
        default=None,
        description="false: it is forgotten by every write to its tables, also where"
        " `cache.row_tags` tells answers apart. true: whatever later rules say, it is not.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        bounds = self.ttl_s, self.max_staleness_ms, self.stale_while_revalidate_s
        if {self.off, self.row_tags, *bounds} == {None}:
            raise ValueError(
                "expected off, ttl_s, max_staleness_ms, stale_while_revalidate_s or row_tags in it"
            )
        return self


class RoutineSettings(_Section):
    """What a stored routine or a loadable function does. `[[routines]]` may be given any number of
    times.

    sqlcache believes it: what a declaration leaves out the routine does not do. Of a routine that
    is not declared it is feared that it reads and writes everything.
    """

    name: RoutineName = Field(
        description="SCHEMA.NAME of a stored procedure or function, or of one of each; NAME of a"
        " loadable function."
    )
    deterministic: bool = Field(
        default=False,
        description="For the same arguments and the same contents of `reads` it always answers the"
        " same, so reads that call it may be cached.",
    )
    reads: tuple[Table, ...] = Field(
        default=(), description="The tables it reads, each as SCHEMA.TABLE."
    )
    writes: tuple[Table, ...] = Field(
        default=(),
        description="The tables it writes, less what triggers and foreign keys write in turn.",
    )


class Settings(_Section):
    """All settings, a section a package."""

    proxy: ProxySettings = ProxySettings()
    upstream: UpstreamSettings
    memcached: MemcachedSettings
    cache: CacheSettings = CacheSettings()
    binlog: BinlogSettings = BinlogSettings()
    admin: AdminSettings = AdminSettings()
    log: LogSettings = LogSettings()
    rules: tuple[RuleSettings, ...] = ()
    routines: tuple[RoutineSettings, ...] = ()

    @model_validator(mode="after")
    def _memory_is_one_process(self) -> Self:
        if self.memcached.in_memory and self.workers > 1:
            raise ValueError(
                "memcached.nodes = memory is the store of one process:"
                " expected proxy.workers = 1, or memcached nodes"
            )
        return self

    @model_validator(mode="after")
    def _routines_are_apart(self) -> Self:
        """Else it is not known which of them counts."""
        declared: dict[tuple[str, str], int] = {}
        for number, routine in enumerate(self.routines):
            schema, _, name = routine.name.rpartition(".")
            before = declared.setdefault((schema, name.lower()), number)
            if before != number:
                raise ValueError(
                    f"routines[{number}].name = {routine.name}: expected another name than"
                    f" routines[{before}] has, which declares all that it does"
                )
        return self

    @model_validator(mode="after")
    def _doors_are_apart(self) -> Self:
        """Else who takes over would wait for ever for the admin address to be free."""
        address = self.proxy.listen
        if address.port and address == self.admin.listen:
            raise ValueError(
                f"admin.listen = {address}: expected another address than proxy.listen has"
            )
        return self

    @property
    def workers(self) -> int:
        """How many processes serve."""
        return self.automatic()["proxy.workers"]

    @property
    def near_bytes(self) -> int:
        """What each process may keep of entries."""
        return self.automatic()["cache.near_bytes"]

    @property
    def statements_bytes(self) -> int:
        """What each process may remember of statements."""
        return self.automatic()["proxy.statements_bytes"]

    @property
    def transactions_bytes(self) -> int:
        """What each process may remember of what open transactions have read; in shadow mode, where
        they are answered from nothing, that is nothing."""
        return 0 if self.cache.mode == "shadow" else self.automatic()["proxy.transactions_bytes"]

    @property
    def memory_bytes(self) -> int:
        """What the embedded store may hold."""
        return self.automatic()["memcached.memory_bytes"]

    @property
    def max_entry_bytes(self) -> int:
        """The longest response that is stored."""
        longest = self.cache.max_entry_bytes
        if self.memcached.in_memory:
            longest = min(longest, self.memory_bytes // _LARGEST_ENTRY_SHARE)
        return longest

    @property
    def kept_bytes(self) -> int:
        """What each process may hold of answers that are to be stored, while they go by, and of
        long ones from the cache that clients have not read: half of it each."""
        workers = self.workers
        return min(_KEPT_BYTES, _free_bytes(workers) // 8 // workers)

    def automatic(self) -> Mapping[str, int]:
        """By their paths, the settings that may be `auto`, as numbers for this machine."""
        workers = self.proxy.workers or (1 if self.memcached.in_memory else cgroup.cpus())
        free = _free_bytes(workers)
        near, memory = self.cache.near_bytes, self.memcached.memory_bytes
        statements = self.proxy.statements_bytes
        if statements is None:
            share = max(free // 8 // workers, _LEAST_STATEMENTS_BYTES)
            statements = min(_STATEMENTS_BYTES, share)
        if near is None:
            # Beside the embedded store it has each entry once more, for a tenth of CPU.
            near = min(_NEAR_BYTES, free // (8 if self.memcached.in_memory else 4) // workers)
        transactions = self.proxy.transactions_bytes
        if transactions is None:
            transactions = min(_TRANSACTIONS_BYTES, free // 16 // workers)
        return {
            "proxy.workers": workers,
            "proxy.statements_bytes": statements,
            "proxy.transactions_bytes": transactions,
            "cache.near_bytes": near,
            "memcached.memory_bytes": min(_MEMORY_BYTES, free // 2) if memory is None else memory,
        }

    def items(self) -> Iterator[tuple[str, object]]:
        """Every setting as (path, value), such as `cache.ttl_s`; printing a value is safe."""
        automatic = self.automatic()
        for section in type(self).model_fields:
            values = getattr(self, section)
            if section in LISTS:
                for number, each in enumerate(values):
                    given = each.model_dump(by_alias=True, exclude_defaults=True)
                    yield f"{section}[{number}]", given
                continue
            for name in type(values).model_fields:
                path, value = f"{section}.{name}", getattr(values, name)
                here = automatic.get(path) if value is None else None
                yield path, value if here is None else f"auto, here {here}"
