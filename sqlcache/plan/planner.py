"""What a client's statements mean for the cache: which read can be a hit, what is passed on.

Three memories stand before the analysis: a packet's bytes to its plan (a dictionary per session
context), a statement's shape to what it says, and the shape with its schema to what that means
under the present catalog. All that hangs on the catalog is forgotten when the catalog changes.
"""

import logging
from collections.abc import Iterable
from copy import copy
from dataclasses import replace

from sqlcache.cache.bounded import Bounded, Tally, weigh
from sqlcache.cache.engine import Engine
from sqlcache.cache.keys import shortened
from sqlcache.cache.reads import Read, Template
from sqlcache.cache.tags import Tag, read_tags, with_first
from sqlcache.metrics import Metrics
from sqlcache.mysql.packets import HEADER_BYTES
from sqlcache.plan import read_pins, write_pins
from sqlcache.plan.cacheability import (
    CATALOG_UNKNOWN,
    PREPARED_ELSEWHERE,
    PREPARED_OTHERWISE,
    SEVERAL,
    Assessment,
    Cacheable,
    NotCacheable,
    assess,
    calls_stored,
    freshness,
)
from sqlcache.plan.commands import Meaning
from sqlcache.plan.confirmations import Confirmations
from sqlcache.plan.contexts import Context, Contexts, bytes_of
from sqlcache.plan.keeper import Keeper, Upstream
from sqlcache.plan.pins import ReadPins
from sqlcache.plan.plans import (
    UNTRACEABLE,
    Pass,
    Plan,
    Preparation,
    pass_of,
    pass_of_command,
)
from sqlcache.plan.prepared import Prepared
from sqlcache.plan.reader import Reader
from sqlcache.plan.state import SessionState
from sqlcache.plan.tagging import Tagging
from sqlcache.plan.temporary import TemporaryTables
from sqlcache.plan.write_pins import WritePins
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.lexer import Lexed, literals_apart
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.pins import pins as pins_of
from sqlcache.sql.pins.found import Pins
from sqlcache.sql.policy import NOTHING_SAID, Asked, Decision, Policy, Source, read_terms
from sqlcache.sql.shapes import LONGEST_BYTES
from sqlcache.sql.shown import without_values
from sqlcache.sql.statement import Statement, Told
from sqlcache.statement_counts import UNCOUNTED, StatementCounts, Statements

log = logging.getLogger(__name__)

LIST_SHARE = 30
"""The list of statements may take this part of the bytes."""

_LONGEST_SHAPE = 200
"""Of a shape that names plans: of a longer one the head, and a digest."""


class Planner:
    """One process's decisions. `keeper` has the catalog that they go by, `confirmations` tell
    whether that is so now; `reader` has what texts say, `tagging` which tags writes concern.
    `pins_reads`: answers may hang on some rows alone."""

    def __init__(
        self,
        engine: Engine,
        upstream: Upstream,
        metrics: Metrics,
        *,
        max_bytes: int,
        refresh_s: float,
        enabled: bool = True,
        policy: Policy | None = None,
        data_set: str | None = None,
        pins_reads: bool = False,
    ) -> None:
        self._engine = engine
        self._pins_reads = pins_reads
        self.keeper = Keeper(
            engine,
            upstream,
            metrics,
            self._forget,
            self._doubt,
            refresh_s=refresh_s,
            enabled=enabled,
            data_set=data_set,
        )
        self.confirmations = Confirmations(engine, self.keeper)
        # Each has a share of the bytes: the plans a half, in two generations.
        self.reader = Reader(self.keeper, max_bytes=max_bytes // 6)
        self.tagging = Tagging(engine, self.keeper, self.confirmations, max_bytes=max_bytes // 60)
        self._rules = policy or Policy(ttl_s=engine.limits.ttl_s)
        self._policy = self._rules  # with names as the catalog's server compares them
        self._folded_for: int | None = None  # its `lower_case_table_names`
        self._contexts = Contexts(max_bytes // 4, self._renew)
        self._assessments: Bounded[tuple[object, ...], Assessment] = Bounded(max_bytes // 15)
        self.counts: Bounded[tuple[bytes, bytes], bytes] = Bounded(max_bytes // 60)
        """Answers to what asks for FOUND_ROWS() only: by fingerprint and packet, as entries."""
        self.prepared = Tally(max_bytes // 5)
        """What clients prepared, in all sessions."""
        self.statements = Statements(max_bytes // LIST_SHARE)
        """What they were answered by."""

    async def start(self) -> None:
        """Reads the catalog, and from then on again and again. MySQL may be away."""
        await self.keeper.start()

    async def close(self) -> None:
        """Decides nothing any more."""
        await self.keeper.close()
        self.reader.close()

    def use(self, policy: Policy) -> None:
        """Decides by these rules from here on, also what was decided before."""
        self._rules = self._policy = policy
        self._folded_for = None
        self._fold()
        self._contexts.retire()

    def _fold(self) -> None:
        catalog = self.keeper.catalog
        if catalog is not None and catalog.server.lower_case_table_names != self._folded_for:
            self._folded_for = catalog.server.lower_case_table_names
            self._policy = self._rules.folded(catalog.server.fold)

    def _forget(self) -> None:
        """What was decided by the definitions of before may be wrong."""
        self._fold()
        self._contexts.retire()
        self._assessments.clear()
        self.tagging.forget()

    def _doubt(self) -> None:
        """What was decided of tables that are to be read again may be wrong."""
        self._contexts.outdate()
        self.tagging.forget()

    def enable(self, enabled: bool) -> None:
        """Whether reads may be answered from the cache from now on."""
        self.keeper.enabled = enabled
        self._contexts.retire()

    def hold_up(self, held_up: bool) -> None:
        """Whether no read may be answered from the cache for now, whoever enables it."""
        if held_up != self.keeper.held_up:
            self.keeper.held_up = held_up
            self._contexts.retire()

    async def mistook(self) -> None:
        """MySQL gave another answer than a plan says: what that went by has changed unseen, as by a
        SET GLOBAL around sqlcache."""
        self._contexts.retire()
        await self.keeper.refresh()

    def _renew(self, plan: Plan) -> Plan | None:
        """The plan as it would be made now, by the catalog that it was made by."""
        if isinstance(plan, Pass):
            current = plan.meaning.edition == self.keeper.edition
            return plan if current else self._pass_again(plan)
        if isinstance(plan, Preparation):
            return plan if plan.meaning.edition == self.keeper.edition else None
        like = plan.like if isinstance(plan, Template) else plan
        edition = self._engine.edition
        if like.edition is None or like.edition == edition:
            return plan
        tables = frozenset(TableName(t.schema, t.table) for t in like.tags.tags if t.table)
        return None if self.keeper.unread_among(tables) else plan.under(edition)

    def context(self, state: SessionState) -> Context:
        """The shared context of sessions like this one."""
        return self._contexts.of(state)

    def plan_read(
        self, packet: bytes, lexed: Lexed, statement: Statement, context: Context
    ) -> Read | NotCacheable:
        """The read a statement is, remembered for its packet; or why it is none."""
        if context.several and lexed.may_be_several:
            return SEVERAL
        like = self._plan(lexed, statement, context, context.schema, strings=context.sends_utf8)
        if not isinstance(like, Read):
            return like
        if len(packet) > LONGEST_BYTES:  # its literals will not be taken out of it
            like.pinning = ()
            template = self._engine.template(like, context.fingerprint, ())
            read = template.read(lexed.canonical)
            context.remember(packet, read)
            return read
        apart = literals_apart(lexed)
        template = self._engine.template(like, context.fingerprint, (apart.canonical,))
        read = template.read(apart.literals)
        context.remember(packet, read)
        if apart.alike and not self._goes_by_literals(statement):
            context.remember_shape(packet, apart.literals, template)
        return read

    def plan_executions(
        self, prepared: Prepared, statement: Statement, context: Context
    ) -> Template | NotCacheable:
        """The reads that the executions of a prepared statement are, or why they are none.

        Its names and modes are those of the session when it prepared it. One of another schema the
        server is to see: to run it, it leaves the default schema, whose rights it then reads anew.
        """
        known = context.planned_for(prepared)
        if isinstance(known, Template):
            return known
        schema, parameters = prepared.schema, prepared.parameters
        if schema != context.schema:
            return PREPARED_ELSEWHERE
        if prepared.preparing != context.preparing:
            return PREPARED_OTHERWISE
        strings = context.reads_as_sent(prepared)
        like = self._plan(prepared.lexed, statement, context, schema, parameters, strings=strings)
        if not isinstance(like, Read):
            return like
        fields = (b"prepared", prepared.fingerprint, prepared.lexed.canonical)
        template = self._engine.template(like, context.fingerprint, fields)
        self.plan_prepared(prepared, context, template)
        return template

    def plan_prepared(self, prepared: Prepared, context: Context, plan: Template | Pass) -> None:
        """From here on this plan serves the executions of a prepared statement, where there is room
        to keep it; and of others that are prepared alike, unless it is for what was sent to it."""
        if not isinstance(plan, Pass) or plan.reason != UNTRACEABLE:
            context.remember(prepared.names, plan)
        prepared.plan, prepared.plan_bytes = (context, plan), bytes_of(plan)
        self.weigh(prepared)
        if self.prepared.full:
            prepared.plan, prepared.plan_bytes = None, 0
            self.weigh(prepared)

    def weigh(self, prepared: Prepared) -> None:
        """Follows what a prepared statement takes, which is more when an execution was answered
        from the cache: its packet is kept. Where there is no room for more, the server is to see
        the executions that it keeps for it: it is cached no more."""
        self.prepared.size_bytes += prepared.weigh()
        prepared.traceable &= not self.prepared.full

    def dateless(self, statement: Statement, schema: str | None) -> tuple[bool, ...]:
        """For each marker that a prepared statement's shape has, whether no date can be wanted
        there."""
        catalog = self.keeper.catalog
        if catalog is None:
            return ()
        named = [catalog.server.resolve(ref, schema) for ref in statement.reads]
        closure = catalog.reads.closure(name for name in named if name is not None)
        if None in named or closure.reason is not None:
            return ()
        return catalog.reads.dateless(statement.markers, closure.tables)

    def _plan(
        self,
        lexed: Lexed,
        statement: Statement,
        context: Context,
        schema: str | None,
        parameters: int | None = None,
        *,
        strings: bool,
    ) -> Read | NotCacheable:
        """A read like the one that a statement is, or why it is none. `strings`: see `of_read`."""
        catalog = self.keeper.catalog
        if catalog is None:
            return CATALOG_UNKNOWN
        reads = statement.reads
        if self.keeper.has_unread and self.keeper.unread_by(catalog.server.named(reads, schema)):
            return CATALOG_UNKNOWN
        assessment = self._assessment(lexed.shape, statement, context, schema)
        if isinstance(assessment, NotCacheable):
            return assessment
        decision = self.decide(assessment, lexed, statement, context)
        allowed = freshness(decision)
        if isinstance(allowed, NotCacheable):
            return allowed
        counts = self.statements.of(without_values(lexed), statement.kind.value, schema)
        if log.isEnabledFor(logging.DEBUG):
            shown = counts.text[:_LONGEST_SHAPE]
            log.debug("read planned schema=%s statement=%s", schema or "", shown)
        pinning: tuple[ReadPins, ...] = ()
        if decision.row_tags.value:
            pinning = self.pins_of_read(
                lexed, statement, assessment, schema, parameters, strings=strings
            )
        like = self._engine.read(
            context.fingerprint,
            b"",
            with_first(assessment.tags, (each.name for each in pinning)),
            shortened(lexed.shape, _LONGEST_SHAPE),
            allowed,
            rolls_back=assessment.rolls_back,
            some_roll_back=assessment.some_roll_back,
            counts_all=statement.counts_all,
            proof_rows=assessment.proof_rows,
            planned=True,
            counts=counts,
        )
        like.pinning = pinning
        return like

    def pins_of_read(
        self,
        lexed: Lexed,
        statement: Statement,
        assessment: Cacheable,
        schema: str | None,
        parameters: int | None,
        *,
        strings: bool = True,
    ) -> tuple[ReadPins, ...]:
        """What the answers to reads like this may be told apart by; see `read_pins`."""
        catalog = self.keeper.catalog
        if catalog is None or not self._pins_reads or len(lexed.text) > LONGEST_BYTES:
            return ()
        if assessment.views or statement.routines:
            return ()
        proves = assessment.proof_rows is not None
        return read_pins.of_read(
            lexed,
            assessment.tables,
            catalog,
            schema,
            parameters,
            proves=proves,
            strings=strings,
        )

    def counts_of(self, meaning: Meaning, schema: str | None = None) -> StatementCounts:
        """The row of a command, sent by a session with this default schema."""
        if meaning.lexed is None or not meaning.statements:
            return UNCOUNTED
        kind = meaning.statements[0].kind.value
        return self.statements.of(without_values(meaning.lexed), kind, schema)

    def decide(
        self, assessment: Cacheable, lexed: Lexed, statement: Statement, context: Context
    ) -> Decision:
        """How an answer may age, by the rules and by what the app says."""
        words = [
            Source(f"/* sqlcache: {said} */", read_terms(said)) for said in statement.directives
        ]
        if context.words != NOTHING_SAID:
            words.append(Source("@sqlcache", context.words))
        return self._policy.decide(assessment.tables, Asked(context.user, lexed, tuple(words)))

    def plan_to_pass(self, meaning: Meaning, cause: NotCacheable) -> Pass | None:
        """The plan to pass a command through without another thought, if nothing of what it means
        asks for one."""
        counts = self.counts_of(meaning)
        if log.isEnabledFor(logging.DEBUG):
            # Not its shape: where MySQL cannot read it a word may be a literal without its quotes.
            log.debug("pass planned kind=%s reason=%s", counts.kind, cause.why)
        plan = pass_of(meaning, cause, counts)
        short = meaning.lexed is not None and len(meaning.lexed.text) <= LONGEST_BYTES
        if plan is not None and meaning.lexed is not None and short and plan.meaning.writes.tables:
            plan.told = pins_of(meaning.lexed.tokens)
            plan.own_bytes += weigh(plan.told)
        return None if plan is None else self._marked(plan)

    def _pass_again(self, plan: Pass) -> Pass | None:
        again = copy(plan)
        again.meaning = replace(plan.meaning, edition=self.keeper.edition)
        return self._marked(again)

    def _marked(self, plan: Pass) -> Pass | None:
        """The plan with what it marks and observes, if that is known."""
        meaning = plan.meaning
        if not self._knows_all(meaning.statements, meaning.schema):
            return None
        if meaning.writes:
            marks = self.tagging.marks(meaning.writes)
            if marks is None:
                return None
            plan.marks = marks
            plan.observes = self._engine.marks((), marks.observed, marks.edition)
            plan.rolls_back = not self.tagging.non_transactional(meaning.writes)
            plan.pins = self.pins_of_write(plan.told, meaning.writes)
        elif plan.uses:
            plan.observes = self.confirmations.rights
        return plan

    def pins_of_write(self, told: Pins | None, writes: WriteSet) -> WritePins | None:
        """What writes like this touch, by what their text pins; see `write_pins`."""
        catalog = self.keeper.catalog
        if told is None or catalog is None or not self._pins_reads:
            return None
        return write_pins.of_write(told, writes, catalog)

    def remember_pass(self, packet: bytes, meaning: Meaning, context: Context, plan: Pass) -> None:
        """From here on the packet is passed through by this plan, and others of its shape."""
        assert meaning.lexed is not None
        context.remember(packet, plan)
        apart = None if len(packet) > LONGEST_BYTES else literals_apart(meaning.lexed)
        if apart is None or context.literals_of(packet) != apart.literals:
            plan.told = plan.pins = None
            return  # its literals will not be taken out of it, nor out of others
        if apart.alike and not any(map(self._goes_by_literals, meaning.statements)):
            context.remember_shape(packet, apart.literals, plan)

    def _goes_by_literals(self, statement: Statement) -> bool:
        """Whether others that differ in their literals alone may be planned otherwise."""
        catalog = self.keeper.catalog
        zones = catalog is not None and catalog.server.zones
        deciding = statement.may_tell & ~Told.OFFSETS if zones else statement.may_tell
        return self._policy.reads_texts or deciding is not Told.NOTHING

    def remember_preparation(self, packet: bytes, context: Context, plan: Preparation) -> None:
        """From here on the packet prepares a statement by this plan."""
        if self._knows_all(plan.meaning.statements, plan.meaning.schema):
            context.remember(packet, plan)

    def remember_command(self, packet: bytes, context: Context) -> None:
        """From here on a command that is no statement is passed through by a plan, if it can be."""
        plan = pass_of_command(packet[HEADER_BYTES])
        again = None if plan is None else self._pass_again(plan)
        if again is not None:
            context.remember(packet, again)

    def _knows_all(self, statements: Iterable[Statement], schema: str | None) -> bool:
        """Whether all names in them are those of tables that are known as they are now."""
        catalog = self.keeper.catalog
        if catalog is None:
            return False
        named = [catalog.server.resolve(r, schema) for s in statements for r in s.reads | s.writes]
        known = [
            name
            for name in named
            if name is not None and catalog.knows(name) and not catalog.hides(name)
        ]
        return len(known) == len(named) and not self.keeper.unread_by(known)

    @property
    def size_bytes(self) -> int:
        """What is remembered of statements, roughly."""
        of_texts = (self._contexts, self.reader, self.prepared, self.statements)
        of_meanings = (self._assessments, self.tagging, self.counts)
        return sum(part.size_bytes for part in (*of_texts, *of_meanings))

    def _assessment(
        self, shape: bytes, statement: Statement, context: Context, schema: str | None
    ) -> Assessment:
        if not statement.cacheable:
            return self.assess(statement, schema)
        key = (shape, schema, context.dialect, statement.told)
        assessment = self._assessments.get(key)
        if assessment is None:
            assessment = self.assess(statement, schema)
            self._assessments.put(key, assessment, weigh(assessment) + len(shape))
        return assessment

    def assess(self, statement: Statement, schema: str | None) -> Assessment:
        """Whether a statement is a read that may be a hit, by the catalog at hand."""
        catalog = self.keeper.catalog
        return CATALOG_UNKNOWN if catalog is None else assess(statement, schema, catalog)

    def may_mean_temporary(
        self, read: Read, statement: Statement, schema: str | None, own: TemporaryTables
    ) -> bool:
        """Whether a read may come to one of its session's temporary tables, which are known: by its
        own names, or by those in views that it opens; code that it calls may name any."""
        catalog = self.keeper.catalog
        if catalog is None or statement.routines or calls_stored(statement, catalog):
            return True
        names = catalog.server.named(statement.reads, schema)
        opened = catalog.reads.closure(names)
        if opened.routine_schemas or opened.may_write or self.keeper.unread_by(names):
            return True
        planned = (TableName(tag.schema, tag.table) for tag in read.tags.tags if tag.table)
        return own.may_hide({*names, *planned, *opened.tables})

    def names(self, refs: Iterable[TableRef], schema: str | None) -> frozenset[TableName]:
        """The full names of tables. Raises: LookupError where one has no schema, or the catalog
        is not known."""
        if self.keeper.catalog is None:
            raise LookupError("the catalog is not known")
        names = frozenset(self.keeper.catalog.server.resolve(ref, schema) for ref in refs)
        if None in names:
            raise LookupError("a table is named without its schema, and there is no default one")
        return frozenset(name for name in names if name is not None)

    def tags_of(self, names: Iterable[TableName]) -> tuple[Tag, ...]:
        """The tags an answer hangs on that comes from these tables or views, the catalog known."""
        assert self.keeper.catalog is not None
        closure = self.keeper.catalog.reads.closure(names)
        return read_tags(closure.tables, closure.schemas)
