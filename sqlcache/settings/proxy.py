"""`[proxy]`: whom the MySQL door lets in, what they may take, and how many processes serve them."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from sqlcache.settings.section import Section, expect_together
from sqlcache.settings.values import DAY_S, Address, File, HostPort, OrAuto, Seconds

_MOST_CONNECTIONS: Final = 1_000_000


class ProxySettings(Section):
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
        expect_together(self.tls_certificate, self.tls_key)
        if self.tls_required and self.tls_certificate is None and not self.tls_auto:
            raise ValueError(
                "expected tls_certificate and tls_key, or tls_auto = true,"
                " where tls_required = true"
            )
        return self
