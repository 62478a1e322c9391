"""`[[routines]]`: what a routine is declared to do."""

from pydantic import Field

from sqlcache.settings.section import Section
from sqlcache.settings.values import RoutineName, Table


class RoutineSettings(Section):
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
