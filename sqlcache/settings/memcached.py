"""`[memcached]`: the nodes of the store, and how long they are waited for."""

from typing import Annotated, Final, Self

from pydantic import Field, SecretStr, model_validator

from sqlcache.settings.section import Section, secret_of
from sqlcache.settings.values import File, HostPort, Nodes, OrAuto, Seconds

_SHORTEST_SECRET: Final = 16


class MemcachedSettings(Section):
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
        given = secret_of("secret", self.secret, self.secret_file, shortest=_SHORTEST_SECRET)
        self._keep_secret(given)
        return self

    def read_secret(self) -> str | None:
        """The secret, as it was when the settings were read; None where there is none."""
        return self._kept_secret()
