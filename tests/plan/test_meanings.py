"""What commands mean, and what finding that out costs others."""

import asyncio
import secrets
import sys
import threading
from dataclasses import replace
from time import process_time

import pytest

from sqlcache.cache.bounded import weigh
from sqlcache.cache.reads import Read, Template
from sqlcache.mysql.constants import Capability, Command, Status
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import followed
from sqlcache.plan import reader
from sqlcache.plan.cacheability import NotCacheable
from sqlcache.plan.commands import ClientCommand
from sqlcache.plan.meanings import MOST_PARAMETERS, Meanings
from sqlcache.plan.planner import Planner
from sqlcache.plan.plans import UNTRACEABLE
from sqlcache.plan.reader import ON_THE_LOOP_BYTES, Way
from sqlcache.plan.state import SessionState
from sqlcache.plan.variables import Globals
from sqlcache.plan.writeset import WriteSet
from sqlcache.sql.analysis import analyse
from sqlcache.sql.analysis.texts import MOST_NAMES
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.lexer import lex
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.policy import NOTHING_SAID, Terms
from sqlcache.sql.routines import NONE_DECLARED, Declared, Routine
from sqlcache.sql.statement import Statement, Told
from sqlcache.sql.versioned import Opens
from tests.costs import TRIES, a_moment, costs_at_most
from tests.proxy.fill_memory import TABLES, planner_and_session


def command(text: bytes, code: Command = Command.QUERY) -> ClientCommand:
    return ClientCommand(code, packet(0, bytes((code,)) + text), whole=True)


async def test_others_go_on_while_a_long_text_is_read() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        ors = command(b"SELECT a FROM t1 WHERE " + b" OR ".join([b"a = b"] * 30_000))
        turns = 0
        reading = asyncio.ensure_future(meanings.read_ahead(ors, state))
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
        (statement,) = meanings.of(ors, state).statements
        assert statement.reason == "is too long to be judged"
        assert not meanings.of(ors, state).writes


async def test_a_text_with_query_attributes_says_what_it_says_and_is_never_planned() -> None:
    async with planner_and_session() as (planner, state):
        capabilities = state.login.capabilities | Capability.QUERY_ATTRIBUTES
        attributes = state.login._replace(capabilities=capabilities)
        told = SessionState(
            attributes, planner.keeper.globals, Status.AUTOCOMMIT, secrets.token_hex
        )
        meanings = Meanings(planner)
        of_one = b"\1\1\0\1\xfe\0\1a\1x"
        for text in (b"SELECT a FROM t1", b"UPDATE t1 SET a = 1", b"SET NAMES utf8mb4", b"BEGIN"):
            marked, plain = command(of_one + text), command(b"\0\1" + text)
            for each in (marked, plain):
                await meanings.read_ahead(each, told)
            meaning = meanings.of(marked, told)
            assert meaning == replace(meanings.of(plain, told), has_attributes=True)
            assert planner.plan_to_pass(meaning, NotCacheable.since(UNTRACEABLE)) is None
            assert planner.counts_of(meaning) is planner.counts_of(meanings.of(plain, told))
            assert meanings.text_of(marked, told.capabilities) == text


async def test_versioned_comments_are_opened_by_the_server_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with planner_and_session() as (planner, state):
        keeper, meanings = planner.keeper, Meanings(planner)
        assert keeper.catalog is not None
        skips = command(b"SELECT a /*!99999 , b */ FROM t1")
        assert meanings.of(skips, state).writes.everything  # it has not said what it opens
        opens = Opens(is_mariadb=False, version=80400)
        server = replace(keeper.catalog.server, opens=opens)
        monkeypatch.setattr(keeper.catalog, "server", server)
        assert meanings.of(skips, state).statements[0].cacheable
        monkeypatch.setattr(type(keeper), "is_met", False)  # by now it may be another
        assert meanings.of(skips, state).writes.everything


LISTED = b"SELECT a FROM t1 WHERE a IN (" + b",".join([b"1"] * 50_000) + b")"
INSERTED = b"INSERT INTO t1 VALUES " + b",".join([b"(1)"] * 20_000)


@pytest.mark.parametrize("text", [LISTED, LISTED + b"'", INSERTED])
async def test_a_long_text_is_split_in_a_thread_alone(text: bytes, split_here: list[int]) -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        context = planner.context(state)
        query = command(text)
        await meanings.read_ahead(query, state)
        meaning = meanings.of(query, state)
        if meaning.lexed is not None and meaning.writes:
            plan = planner.plan_to_pass(meaning, NotCacheable.since("not cacheable"))
            assert plan is not None
            planner.remember_pass(query.data, meaning, context, plan)
        elif meaning.lexed is not None:
            read = planner.plan_read(query.data, meaning.lexed, meaning.statements[0], context)
            assert isinstance(read, Read)
            assert context.planned(query.data) is read
        assert not split_here


async def test_a_long_text_is_read_in_a_thread_when_definitions_changed(
    split_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        query, prepare = command(LISTED), command(LISTED, Command.STMT_PREPARE)
        await meanings.read_ahead(query, state)
        declared = Declared(frozenset({Routine("s", "f")}), "s")
        monkeypatch.setattr(planner.reader, "declared", lambda schema: declared)
        await meanings.read_ahead(query, state)
        assert meanings.of(query, state).statements[0].reads
        await meanings.read_ahead(prepare, state)
        monkeypatch.setattr(planner.reader, "declared", lambda schema: NONE_DECLARED)
        meanings.remember(1, 1, 0, prepare, state)
        assert not split_here


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads in which texts were judged, each time."""
    threads = list[int]()
    judge = Way.analyse

    def watched(way: Way, text: bytes) -> tuple[Statement, ...]:
        threads.append(threading.get_ident())
        return judge(way, text)

    monkeypatch.setattr(Way, "analyse", watched)
    return threads


@pytest.mark.parametrize("code", [Command.QUERY, Command.STMT_PREPARE])
async def test_what_a_dense_text_of_some_length_says_is_found_out_in_a_thread(
    judged: list[int], code: Command
) -> None:
    """It takes 5 ms where it has 200 columns."""
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        dense = command(b"SELECT " + b",".join([b"a"] * 300) + b" FROM t1", code)
        await meanings.read_ahead(dense, state)
        of = meanings.of if code == Command.QUERY else meanings.of_prepared_text
        assert of(dense, state).statements[0].reads
        assert len(judged) == 1
        assert threading.get_ident() not in judged


UPDATED = b"UPDATE " + b", ".join(b"t%d" % each for each in range(TABLES)) + b" SET t0.a = %d"


@pytest.mark.parametrize(
    ("each", "followed"),
    [
        (UPDATED, True),
        (UPDATED.replace(b"t0, ", b"new%d, "), False),
        (b"USE a%d; " + UPDATED, False),
    ],
)
async def test_what_many_statements_of_a_text_name_is_looked_at_but_so_often(
    each: bytes, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is while others wait."""
    resolved = 0
    resolve = Server.resolve

    def counting(server: Server, ref: TableRef, schema: str | None) -> TableName | None:
        nonlocal resolved
        resolved += 1
        return resolve(server, ref, schema)

    monkeypatch.setattr(Server, "resolve", counting)
    async with planner_and_session() as (planner, state):
        state.multi_statements = True
        meanings = Meanings(planner)
        numbers = each.count(b"%d")
        text = command(b"; ".join(each % ((number,) * numbers) for number in range(450)))
        await meanings.read_ahead(text, state)
        meaning = meanings.of(text, state)
        await planner.keeper.learn_of(meaning.statements, state)
        assert (len(meaning.statements) == 450) is followed
        assert meaning.writes.everything is not followed
        assert resolved < 10 * MOST_NAMES


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"EXECUTE IMMEDIATE '", Command.QUERY),
        (b"EXECUTE IMMEDIATE '", Command.STMT_PREPARE),
        (b"PREPARE s FROM '", Command.QUERY),
    ],
)
async def test_what_a_literal_of_some_length_runs_is_found_out_in_a_thread(
    judged: list[int], head: bytes, code: Command
) -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        long = command(head + b"SELECT " + b",".join([b"a"] * 300) + b" FROM t1'", code)
        await meanings.read_ahead(long, state)
        of = meanings.of if code == Command.QUERY else meanings.of_prepared_text
        meaning = of(long, state)
        if head.startswith(b"PREPARE"):
            meanings.by_name.ran(meaning.statements, state, failed=False)
            assert threading.get_ident() not in judged
            meaning = meanings.of(command(b"EXECUTE s"), state)
        else:
            assert threading.get_ident() not in judged
        assert meaning.statements[0].reads == {TableRef(None, "t1")}
        assert not meaning.writes


async def test_a_literal_that_was_read_another_way_is_not_followed() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        long = command(b"EXECUTE IMMEDIATE 'SELECT " + b"a, " * 300 + b"a FROM t1'")
        await meanings.read_ahead(long, state)
        state.ran(analyse(b"SET sql_mode = 'ANSI_QUOTES'", state.dialect), failed=False)
        assert meanings.of(long, state).writes.everything


async def test_what_is_remembered_of_a_long_text_is_weighed_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = set()

    def watched(value: object) -> int:
        threads.add(threading.get_ident())
        return weigh(value)

    monkeypatch.setattr(reader, "weigh", watched)
    async with planner_and_session() as (planner, state):
        await Meanings(planner).read_ahead(command(b"SELECT " + b"a, " * 300 + b"a FROM t1"), state)
        assert threads
        assert threading.get_ident() not in threads


async def test_nothing_is_kept_of_a_text_that_was_answered() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        query = command(LISTED)
        await meanings.read_ahead(query, state)
        lexed = meanings.of(query, state).lexed
        held = sys.getrefcount(lexed)
        meanings.answered()
        assert sys.getrefcount(lexed) < held


@pytest.mark.parametrize("text", [LISTED * 8, INSERTED * 8, b"SELECT " + b"a," * 300_000 + b"a"])
async def test_others_do_not_wait_for_all_of_a_long_text(text: bytes) -> None:
    """What a thread does in one call of C keeps the event loop from turning for as long. Their
    share is compared, of the processor's time: others use it as well."""

    async def longest_share() -> float:
        async with planner_and_session() as (planner, state):
            began = last = process_time()
            longest = 0.0
            reading = asyncio.ensure_future(planner.reader.apart(lex, text, state.dialect))
            while not reading.done():
                await asyncio.sleep(0.0005)
                longest = max(longest, process_time() - last)
                last = process_time()
            return longest / (last - began)

    least = 1.0
    for _ in range(TRIES):
        least = min(least, await longest_share())
        if least < 0.15:
            return
    raise AssertionError(least)


async def test_a_text_read_ahead_means_what_it_does_read_at_once() -> None:
    async with planner_and_session() as (planner, state):
        listed = b",    ".join([b"?"] * MOST_PARAMETERS)
        assert len(listed) > ON_THE_LOOP_BYTES
        text = b"SELECT a FROM t1 WHERE a IN (" + listed + b")"
        ahead, at_once = Meanings(planner), Meanings(planner)
        for code in (Command.STMT_PREPARE, Command.QUERY):
            read = command(text, code)
            await ahead.read_ahead(read, state)
            assert ahead.of(read, state) == at_once.of(read, state)
        prepare = command(text, Command.STMT_PREPARE)
        await ahead.read_ahead(prepare, state)
        ahead.remember(1, 1, MOST_PARAMETERS, prepare, state)
        execute = command((1).to_bytes(4, "little"), Command.STMT_EXECUTE)
        known = ahead.prepared(execute)
        assert known is not None
        assert known.dateless == (True,) * MOST_PARAMETERS


def with_literals_in(charset: str, state: SessionState, planner: Planner) -> SessionState:
    """One like it where this is the global `character_set_connection`."""
    settings = (*planner.keeper.globals.settings, ("character_set_connection", charset))
    return SessionState(state.login, Globals(settings), Status.AUTOCOMMIT, secrets.token_hex)


LONG = b" AND a <> 5 OR b = c" * 40
"""Makes a text one that is read ahead."""


@pytest.mark.parametrize("more", [b"", LONG])
@pytest.mark.parametrize("code", [Command.QUERY, Command.STMT_PREPARE])
async def test_what_literals_tell_is_known_of_each_text_of_a_shape(
    code: Command, more: bytes
) -> None:
    read = b"SELECT a FROM t1 WHERE a > STR_TO_DATE('10 11', '%s')" + more
    async with planner_and_session() as (planner, state):
        state = with_literals_in("utf8mb4", state, planner)
        meanings = Meanings(planner)
        for form, told in ((b"%H", Told.NOTHING), (b"%Y", Told.DATES), (b"%i", Told.NOTHING)):
            text = command(read.replace(b"%s", form), code)
            await meanings.read_ahead(text, state)
            prepare = code is Command.STMT_PREPARE
            meaning = (
                meanings.of_prepared_text(text, state) if prepare else meanings.of(text, state)
            )
            assert [each.told for each in meaning.statements] == [told]
            assert meaning.lexed is not None
            made = planner.assess(meaning.statements[0], state.schema)
            assert isinstance(made, NotCacheable) is (told is Told.NOTHING)
            meanings.answered()


async def test_literals_tell_nothing_where_they_are_made_of_other_bytes() -> None:
    text = b"SELECT a FROM t1 WHERE a > STR_TO_DATE('', '%y')"
    async with planner_and_session() as (planner, state):
        told = []
        for charset in ("utf8mb4", "latin1", "utf16", "unheard_of", ""):
            other = with_literals_in(charset, state, planner)
            (statement,) = Meanings(planner).of(command(text), other).statements
            told.append(statement.told)
        assert told == [Told.DATES] * 2 + [Told.NOTHING] * 3


@pytest.mark.parametrize("first", [b"%Y", b"%H"])
async def test_no_plan_for_other_literals_is_kept_where_these_decide(first: bytes) -> None:
    read = b"SELECT a FROM t1 WHERE a > STR_TO_DATE('10', '%s')"
    async with planner_and_session() as (planner, state):
        state = with_literals_in("utf8mb4", state, planner)
        meanings, context = Meanings(planner), planner.context(state)
        for form in (first, b"%Y", b"%H"):
            query = command(read.replace(b"%s", form))
            assert context.planned_by_shape(query.data) is None
            meaning = meanings.of(query, state)
            assert meaning.lexed is not None
            made = planner.plan_read(query.data, meaning.lexed, meaning.statements[0], context)
            if isinstance(made, NotCacheable):
                assert form == b"%H"
                plan = planner.plan_to_pass(meaning, made)
                assert plan is not None
                planner.remember_pass(query.data, meaning, context, plan)
            assert isinstance(made, Read) is (form == b"%Y")


async def test_each_kill_ends_the_connection_that_it_names() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        for number in (7, 8, 7):
            for kill in (b"KILL %d", b"KILL CONNECTION %d", b"/* so */ KILL HARD %d"):
                assert meanings.of(command(kill % number), state).kills == {number}
            assert not meanings.of(command(b"KILL QUERY %d" % number), state).kills


async def test_where_a_server_has_zones_it_does_not_matter_how_they_are_named() -> None:
    read = b"SELECT a FROM t1 WHERE a > CONVERT_TZ('2020-01-01', '%s', '+01:00')"
    async with planner_and_session() as (planner, state):
        context = planner.context(state)
        query, other = (command(read.replace(b"%s", zone)) for zone in (b"+00:00", b"UTC"))
        meaning = Meanings(planner).of(query, state)
        assert meaning.lexed is not None
        planner.plan_read(query.data, meaning.lexed, meaning.statements[0], context)
        assert context.planned_by_shape(other.data) is not None


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (b"SELECT a FROM t1 WHERE a IN (?, ?, ?) AND b = ? LIMIT ?, ?", {4, 5}),
        (b"(SELECT a FROM t1 LIMIT ?) UNION (SELECT ? FROM t1) LIMIT ? OFFSET ?", {0, 2, 3}),
        (b"SELECT a FROM t1 WHERE a = ? /*!40101 LIMIT ? */", {0, 1}),
        (b"SELECT a FROM t1 WHERE a = ?", set()),
    ],
)
async def test_parameters_that_are_numbers_of_rows_are_found(text: bytes, limits: set[int]) -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        meanings.remember(1, 1, text.count(b"?"), command(text, Command.STMT_PREPARE), state)
        known = meanings.prepared(command((1).to_bytes(4, "little"), Command.STMT_EXECUTE))
        assert known is not None
        assert known.limits == limits


async def test_what_is_prepared_is_followed_as_long_as_there_is_room() -> None:
    async with planner_and_session(max_bytes=1 << 20) as (planner, state):
        meanings = Meanings(planner)
        prepare = command(b"SELECT a FROM t1 WHERE b = '" + b"x" * 5_000 + b"' AND c = ?")
        for number in range(100):
            meanings.remember(number, 1, 1, prepare, state)
        followed = [
            number
            for number in range(100)
            if meanings.prepared(command(number.to_bytes(4, "little"), Command.STMT_EXECUTE))
        ]
        assert followed == list(range(len(followed)))
        assert 2 < len(followed) < 60
        assert planner.prepared.size_bytes < planner.prepared.max_bytes + 100 * 5_000
        last = meanings.of(command((99).to_bytes(4, "little"), Command.STMT_EXECUTE), state)
        assert last.statements[0].reads
        assert not last.writes
        meanings.forget()
        assert planner.prepared.size_bytes == 0


LONG_TEXTS = [
    b"SELECT a FROM t1 /* sqlcache: " + b"x" * 200_000 + b" */",
    b"SET @sqlcache = '" + b"x" * 200_000 + b"'",
    b"DROP TABLE " + b", ".join(b"t%d" % each for each in range(900)),
]


@pytest.mark.parametrize("text", LONG_TEXTS)
async def test_of_what_there_is_no_room_for_little_is_kept(text: bytes) -> None:
    async with planner_and_session() as (planner, state):
        planner.prepared.max_bytes = 0
        meanings = Meanings(planner)
        for number in range(20):
            meanings.remember(number, 1, 0, command(text, Command.STMT_PREPARE), state)
        kept = [
            meanings.of(command(number.to_bytes(4, "little"), Command.STMT_EXECUTE), state)
            for number in range(20)
        ]
        assert weigh(tuple(each.statements for each in kept)) < 20 * 10_000


@pytest.mark.parametrize("text", LONG_TEXTS)
async def test_of_what_is_prepared_by_name_little_is_kept(text: bytes) -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        quoted = text.replace(b"'", b"''")
        for number in range(20):
            prepare = command(b"PREPARE s%d FROM '%b'" % (number, quoted))
            meanings.by_name.ran(meanings.of(prepare, state).statements, state, failed=False)
        kept = [meanings.of(command(b"EXECUTE s%d" % number), state) for number in range(20)]
        assert weigh(tuple(each.statements for each in kept)) < 20 * 10_000


async def test_executions_that_were_hits_are_weighed_as_they_come() -> None:
    """The server is to see them later: so their packets are kept, of each statement one."""
    async with planner_and_session(max_bytes=4 << 20) as (planner, state):
        meanings = Meanings(planner)
        value = b"x" * 50_000
        bound = b"\0\1\xfc\0\xfd" + len(value).to_bytes(3, "little") + value
        kept = 0
        for number in range(100):
            text = command(b"SELECT a FROM t1 WHERE b = ?", Command.STMT_PREPARE)
            meanings.remember(number, 1, 1, text, state)
            head = number.to_bytes(4, "little") + b"\0\1\0\0\0"
            execute = command(head + bound, Command.STMT_EXECUTE)
            meanings.of(execute, state)
            prepared = meanings.prepared(execute)
            if prepared is not None and prepared.traceable:
                execution = prepared.read(execute.payload, Capability.PROTOCOL_41)
                kept += len(prepared.was_hit(execute.data, execution))
                meanings.weigh(prepared)
        assert 0 < kept < planner.prepared.max_bytes + 2 * len(value)


REFUSED = [(1146, True), (1210, False), (1835, False)]
OK = b"\0\0\0\2\0\0\0"


@pytest.mark.parametrize(
    ("code", "said", "known"),
    [
        (Command.STMT_EXECUTE, OK, True),
        (Command.STMT_BULK_EXECUTE, OK, False),
        *(
            (Command.STMT_EXECUTE, b"\xff" + error.to_bytes(2, "little") + b"#HY000No", known)
            for error, known in REFUSED
        ),
    ],
)
async def test_after_parameters_that_the_server_refused_or_had_in_bulk_nothing_is_known(
    code: Command, said: bytes, known: bool
) -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        text = command(b"SELECT a FROM t1 WHERE a = ?", Command.STMT_PREPARE)
        meanings.remember(1, 1, 1, text, state)
        prepared = meanings.prepared_as(1)
        assert prepared is not None
        number, types, value = b"\1\0\0\0", b"\1\3\0", b"\7\0\0\0"
        payload = number + b"\0\1\0\0\0" + b"\0" + types + value
        execution = command(payload, Command.STMT_EXECUTE)
        assert prepared.read(execution.payload, state.capabilities).parameters is not None
        tracker = followed(code, state.capabilities, packet(1, said))
        meanings.took_effect(command(payload, code), tracker, state)
        again = prepared.read(execution.payload, state.capabilities)
        assert (again.parameters is not None) is known


async def test_what_is_known_of_statements_that_are_passed_is_weighed() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        text = b"DELETE t1 FROM t1, t2, t3, t4"
        prepare = command(b"PREPARE a FROM '%b'" % text)
        meanings.by_name.ran(meanings.of(prepare, state).statements, state, failed=False)
        named = planner.prepared.size_bytes
        planner.prepared.max_bytes = 0
        meanings.remember(1, 1, 0, command(text, Command.STMT_PREPARE), state)
        numbered = planner.prepared.size_bytes - named
        assert min(named, numbered) > 1_000
        meanings.remember(1, 1, 0, command(text, Command.STMT_PREPARE), state)
        meanings.by_name.ran(meanings.of(prepare, state).statements, state, failed=False)
        assert planner.prepared.size_bytes == named + numbered
        meanings.sent_unanswered(command((1).to_bytes(4, "little"), Command.STMT_CLOSE))
        assert planner.prepared.size_bytes == named
        meanings.forget()
        assert planner.prepared.size_bytes == 0


async def test_of_names_that_no_server_takes_none_is_kept() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        for number in range(20):
            long = command(b"DO 1; PREPARE a%d%b FROM 'DO 1'" % (number, b"x" * 100_000))
            statements = analyse(long.payload[1:], state.dialect)
            meanings.by_name.ran(statements, state, failed=True)
        assert weigh(meanings.by_name._names) < 1_000


async def test_what_a_prepared_statement_keeps_of_many_tables_is_weighed() -> None:
    async with planner_and_session() as (planner, state):
        meanings, context = Meanings(planner), planner.context(state)
        sizes = []
        for number, tables in enumerate((1, TABLES)):
            before = planner.prepared.size_bytes
            named = b", ".join(b"t%d" % each for each in range(tables))
            text = command(b"SELECT 1 FROM " + named, Command.STMT_PREPARE)
            meanings.remember(number, 1, 0, text, state)
            prepared = planner.prepared.size_bytes
            (meant,) = meanings.of_prepared_text(text, state).statements
            known = meanings.prepared_as(number)
            assert known is not None
            template = planner.plan_executions(known, meant, context)
            assert isinstance(template, Template)
            assert known.planned_under(context) is template
            sizes.append((prepared - before, planner.prepared.size_bytes - prepared))
            planner.prepared.max_bytes = planner.prepared.size_bytes
            planner.plan_prepared(known, context, template)
            assert known.planned_under(context) is None
            planner.prepared.max_bytes *= 100
        (little, least), (much, most) = sizes
        assert much > little + 100 * TABLES
        assert most > least + 100 * TABLES
        meanings.forget()
        assert planner.prepared.size_bytes == 0


async def test_a_statement_with_very_many_parameters_is_passed_through() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        for number, parameters in enumerate((MOST_PARAMETERS, MOST_PARAMETERS + 1)):
            text = b"SELECT a FROM t1 WHERE b IN (" + b",".join([b"?"] * parameters) + b")"
            meanings.remember(number, 1, parameters, command(text, Command.STMT_PREPARE), state)
        known = [
            meanings.prepared(command(number.to_bytes(4, "little"), Command.STMT_EXECUTE))
            for number in (0, 1)
        ]
        assert known[0] is not None
        assert known[1] is None


async def test_a_redefinition_costs_each_execution_what_concerns_its_own_statement() -> None:
    async with planner_and_session() as (planner, state):
        meanings = Meanings(planner)
        text = command(b"SELECT a FROM t1 WHERE b = ?", Command.STMT_PREPARE)
        for number in range(3):
            meanings.remember(number, 1, 1, text, state)
        executions = [
            command(number.to_bytes(4, "little"), Command.STMT_EXECUTE) for number in range(3)
        ]
        await planner.keeper.redefined(WriteSet(redefined=frozenset({TableName("s", "t1")})), {})
        meanings.of(executions[1], state)
        seen = [known.redefinitions for e in executions if (known := meanings.prepared(e))]
        assert seen == [0, planner.keeper.redefinitions, 0]


async def test_the_head_of_a_text_that_goes_on_is_all_that_is_read_of_it() -> None:
    async with planner_and_session() as (planner, state):
        head = b"INSERT INTO t1 VALUES (" + b"1," * 2_000_000
        (statement,) = planner.reader.head(head, state)
        assert statement.writes == {TableRef(None, "t1")}
        assert costs_at_most(200, lambda: planner.reader.head(head, state), a_moment)


async def test_sessions_unlike_all_others_make_nobody_plan_anew() -> None:
    async with planner_and_session() as (planner, state):
        used = planner.context(state)
        for each in range(3_000):
            state.words = Terms(ttl_s=each + 1)
            planner.context(state)
            if not each % 500:
                state.words = NOTHING_SAID
                assert planner.context(state) is used
        assert len(planner._contexts) <= 1_000
