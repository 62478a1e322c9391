"""Plans are kept for sessions alike, as long as what they go by, and in bounded memory."""

from __future__ import annotations

import secrets

from sqlcache.cache.keys import EntryKeys
from sqlcache.cache.reads import Freshness, Read, TagSet, Template
from sqlcache.cache.tags import Tag
from sqlcache.mysql.constants import Capability, Status
from sqlcache.mysql.handshake import Login
from sqlcache.mysql.packets import query_packet
from sqlcache.plan.contexts import Context, Contexts
from sqlcache.plan.plans import Plan
from sqlcache.plan.state import SessionState
from sqlcache.plan.variables import Globals


def session(capabilities: int = Capability.PROTOCOL_41) -> SessionState:
    login = Login(capabilities, 45, b"ann", b"s")
    return SessionState(login, Globals((("sql_mode", ""),)), Status.AUTOCOMMIT, secrets.token_hex)


def a_read(key: bytes = b"key") -> Read:
    return Read(key, TagSet((), (), ()), b"SELECT ?", Freshness(60), rolls_back=True)


def packet_of(text: str) -> bytes:
    return query_packet(text.encode(), 0)


def test_sessions_alike_share_a_context_and_others_do_not() -> None:
    contexts = Contexts(1 << 20)
    assert contexts.of(session()) is contexts.of(session())
    for more in (Capability.QUERY_ATTRIBUTES, Capability.MULTI_STATEMENTS):
        assert contexts.of(session(Capability.PROTOCOL_41 | more)) is not contexts.of(session())
    assert len(contexts) == 3


def test_a_retired_context_holds_nothing_nor_ever_will() -> None:
    contexts = Contexts(1 << 20)
    context = contexts.of(session())
    context.remember(b"packet", a_read())
    assert context.read_for(b"packet") is not None
    contexts.retire()
    assert context.read_for(b"packet") is None
    context.remember(b"packet", a_read())
    assert context.planned(b"packet") is None
    assert contexts.size_bytes == 0
    another = contexts.of(session())
    assert another is not context
    assert another.key == context.key


def test_of_two_halves_the_older_makes_room() -> None:
    contexts = Contexts(50_000)
    context = contexts.of(session())
    for number in range(200):
        context.remember(b"packet %d" % number, a_read())
        assert context.planned(b"packet 0") is not None  # it is asked for all the time
    kept = [number for number in range(200) if _holds(context, b"packet %d" % number)]
    assert kept[-1] == 199
    assert 10 < len(kept) < 90
    assert contexts.size_bytes <= 2 * 50_000
    context.remember(b"x" * 6_000, a_read())
    assert not _holds(context, b"x" * 6_000)


def test_what_is_outdated_is_renewed_when_it_is_asked_for_or_forgotten() -> None:
    edition = 0

    def renew(plan: Plan) -> Plan | None:
        assert isinstance(plan, Read)
        if plan.edition == edition:
            return plan
        return None if plan.key == b"wrong" else plan.under(edition)

    contexts = Contexts(50_000, renew)
    context = contexts.of(session())
    for packet in (b"right", b"wrong"):
        context.remember(packet, a_read(packet).under(0))
    size = contexts.size_bytes
    before, edition = context.read_for(b"right"), 1
    contexts.outdate()
    assert context.plans == {}
    assert contexts.size_bytes == size
    assert context.read_for(b"wrong") is None
    after = context.read_for(b"right")
    assert after is not None
    assert (after.key, after.edition) == (b"right", 1)
    assert after is not before
    assert before is not None
    context.remember(b"late", before)  # it was in flight
    assert context.read_for(b"late") is None
    assert size > contexts.size_bytes > 0


def test_however_often_they_are_outdated_plans_take_no_more() -> None:
    contexts = Contexts(50_000)
    context = contexts.of(session())
    for number in range(400):
        context.remember(b"packet %d" % number, a_read())
        assert context.planned(b"packet 0") is not None
        contexts.outdate()
        assert contexts.size_bytes <= 2 * 50_000
    assert contexts.size_bytes >= (len(context.plans) + len(context.older)) * 1_000


def test_what_is_remembered_again_is_weighed_once() -> None:
    contexts = Contexts(50_000)
    context = contexts.of(session())
    context.remember(b"packet", a_read())
    size = contexts.size_bytes
    for _ in range(10):
        context.remember(b"packet", a_read())
        contexts.outdate()
        context.remember(b"packet", a_read())
    assert contexts.size_bytes == size


def test_what_a_plan_keeps_of_many_tags_is_weighed() -> None:
    contexts = Contexts(1 << 20)
    context = contexts.of(session())
    context.remember(b"few", a_read())
    few = contexts.size_bytes
    tags = tuple(Tag("s", f"t{number}") for number in range(250))
    context.remember(b"one", Read(b"k", TagSet(tags, (), ()), b"", Freshness(60), rolls_back=True))
    assert contexts.size_bytes - few > few + 200 * len(tags)


def _holds(context: Context, packet: bytes) -> bool:
    return packet in context.plans or packet in context.older


def test_a_shape_is_kept_for_the_literals_that_the_lexer_finds() -> None:
    context = Contexts(1 << 20).of(session())
    plan = Template(a_read(), EntryKeys(b"", ()))
    context.remember_shape(packet_of("SELECT 1"), b"2", plan)
    assert context.planned_by_shape(packet_of("SELECT 1")) is None
    context.remember_shape(packet_of("SELECT 1"), b"1", plan)
    assert context.planned_by_shape(packet_of("SELECT 42")) == (plan, b"42")
    for other in ("SELECT 'a'", "SELECT  1", "SELECT 1 /* a */", "SELECT -1"):
        assert context.planned_by_shape(packet_of(other)) is None


def test_only_one_whole_query_is_looked_for_by_its_shape() -> None:
    context = Contexts(1 << 20).of(session())
    plan = Template(a_read(), EntryKeys(b"", ()))
    context.remember_shape(packet_of("SELECT 1"), b"1", plan)
    query = packet_of("SELECT 7")
    assert context.planned_by_shape(query) is not None
    for other in (query[:-1], query + query, query[:4] + b"\x16" + query[5:], query[:5], query[:4]):
        assert context.planned_by_shape(other) is None


def test_no_bytes_of_a_client_are_taken_for_a_shape() -> None:
    """Whatever they begin with: they would be sent on as they are, and read as other commands."""
    context = Contexts(1 << 20).of(session())
    plan = Template(a_read(), EntryKeys(b"", ()))
    context.remember_shape(packet_of("SELECT 1"), b"1", plan)
    ((shape,),) = (command for command in context.plans if not isinstance(command, bytes))
    for data in (shape, bytes(4) + shape, b"\1\0\0\0\x03" + shape, packet_of("")[:4] + shape):
        assert context.planned(data) is None


def test_where_bytes_may_be_other_text_only_the_lexer_reads_it() -> None:
    state = session()
    state.variables = state.variables.set((("character_set_client", "gbk"),)).variables
    context = Contexts(1 << 20).of(state)
    plan = Template(a_read(), EntryKeys(b"", ()))
    context.remember_shape(packet_of("SELECT 1"), b"1", plan)
    assert context.planned_by_shape(packet_of("SELECT 1")) is None
