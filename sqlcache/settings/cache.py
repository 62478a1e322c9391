"""`[cache]`: which answers are kept and served, and for how long."""

from typing import Annotated, Literal

from pydantic import Field

from sqlcache.settings.section import Section
from sqlcache.settings.values import DAY_S, OrAuto, Seconds


class CacheSettings(Section):
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
        description="How long the fence of a write outlives the proxy that set it."
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
