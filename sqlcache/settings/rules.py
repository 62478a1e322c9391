"""`[[rules]]`: which reads a rule is about, and what it says of them."""

from typing import Self

from pydantic import Field, model_validator

from sqlcache.settings.section import Section
from sqlcache.settings.values import DAY_S, Regex, Schema, Table


class RuleSettings(Section):
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
