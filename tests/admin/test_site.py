"""The pages, in one process and with answers of its own; the real ones are in
`tests/integration/test_api.py`."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from sqlcache.admin import api, lists
from sqlcache.admin.api import LONGEST_EXPLAINED, MAX_BODY_BYTES
from sqlcache.admin.health import Readiness
from sqlcache.admin.http import AdminServer
from sqlcache.admin.questions import Question, Refused
from sqlcache.admin.site import site
from sqlcache.errors import ConfigError
from sqlcache.metrics import Metrics
from sqlcache.settings import HostPort
from sqlcache.settings.sources import from_arguments
from sqlcache.statement_counts import StatementCounts
from tests.api_schemas import answer_of, wrong_with
from tests.turns import counted_turns

SETTINGS = from_arguments(
    {
        "upstream.url": "mysql://sqlcache:secret-password@db",
        "memcached.nodes": ["a:1", "b:1"],
        "admin.listen": "127.0.0.1:9307",
    }
)


def table(name: str, hits: int, writes: int) -> dict[str, Any]:
    by_door = {"proxy": writes, "api": 0, "flush": 1, "binlog": 0}
    figures = {"hits": hits, "misses": 0, "writes": by_door, "invalidations": writes, "fills": 0}
    return {"table": name, **figures, "last_write_s_ago": 1.0, "read_s_ago": None}


def session(number: int, user: str, idle_s: float | None) -> dict[str, Any]:
    shown = {"user": user, "address": "10.0.0.7:51034", "schema": None, "pid": number % 2}
    says = {"in_transaction": False, "cacheable": True, "why_not": "", "statement": "SELECT ?"}
    return {"id": number, **shown, "state": "idle", **says, "connected_s": 9.5, "idle_s": idle_s}


def event(second: str, kind: str, text: str) -> dict[str, Any]:
    at = f"2026-11-24T09:15:{second}.000000Z"
    return {"at": at, "s_ago": 60.0 - int(second), "kind": kind, "event": text, "pid": 7}


class Processes:
    """Two, of which each has been asked this often."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.problems: dict[str, str] = {}
        self.answer: Any = {"flushed": "everything"}
        self.total = Metrics()
        self.counts = 0

    async def readiness(self) -> Readiness:
        return Readiness(self.problems, {"grants": "SELECT on mysql.user"})

    async def counted(self) -> Metrics:
        self.counts += 1
        return self.total

    async def ask(self, question: Question, *about: Any) -> list[Any]:
        self.asked.append((question, *about))
        if question is Question.STATEMENTS:
            return [self.statements(), self.statements()]
        if question is Question.TABLES:
            return [[table("shop.a", 50, 1), table("shop.b", 1, 30)], [table("shop.a", 4, 2)]]
        if question is Question.SESSIONS:
            return [[session(7, "ann", 5.0)], [session(8, "bob", 9.0), session(9, "cat", None)]]
        if question is Question.EVENTS:
            return [
                [event("02", "root", "b")],
                [event("03", "node", "c"), event("01", "node", "a")],
            ]
        if question is Question.NODES:
            return [[{"node": "a:1", "away": 0}], [{"node": "a:1", "away": 1}]]
        return [{}, {}]

    async def ask_one(self, question: Question, *about: Any) -> list[Any]:
        self.asked.append((question, *about))
        if question is Question.NODES:
            return [[{"node": "a:1", "away": 0, "curr_items": 3}]]
        if isinstance(self.answer, Exception):
            raise self.answer
        return [] if self.answer is None else [self.answer]

    def statements(self) -> list[dict[str, Any]]:
        metrics = Metrics()
        often, seldom = StatementCounts("SELECT ?", "read"), StatementCounts("DO ?", "other")
        for _ in range(3):
            often.hit(metrics, 0.0, 10)
        often.missed(metrics)
        seldom.went_past(metrics, "not cacheable", "a DO is no query")
        return [often.report(), seldom.report()]


class Configured:
    """What there is to be read again."""

    settings = SETTINGS

    def __init__(self) -> None:
        self.differing: list[tuple[str, bool]] | ConfigError = []

    async def reload(self) -> list[tuple[str, bool]]:
        if isinstance(self.differing, ConfigError):
            raise self.differing
        return self.differing


@pytest.fixture
def configured() -> Configured:
    return Configured()


@pytest.fixture
def processes() -> Processes:
    return Processes()


@pytest.fixture
async def client(processes: Processes, configured: Configured) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(site(processes, configured))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9307") as client:
        yield client


async def test_probes_answer_anybody(client: httpx.AsyncClient, processes: Processes) -> None:
    elsewhere = {"Host": "sqlcache.example"}
    assert (await client.get("/live", headers=elsewhere)).text == "ok\n"
    assert (await client.get("/ready", headers=elsewhere)).json()["ready"] is True
    metrics = (await client.get("/metrics", headers=elsewhere)).text
    assert "sqlcache_hits_total 0\n" in metrics
    assert 'sqlcache_memcached_node_items{node="a:1"} 3\n' in metrics
    processes.problems = {"upstream": "refused"}
    answer = await client.get("/ready")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/json")
    assert answer.json() == {
        "ready": False,
        "problems": {"upstream": "refused"},
        "warnings": {"grants": "SELECT on mysql.user"},
    }
    assert (await client.get("/api/summary", headers=elsewhere)).status_code == 403


async def test_without_a_token_a_door_to_elsewhere_has_probes_alone(
    processes: Processes, configured: Configured
) -> None:
    admin = configured.settings.admin.model_copy(update={"listen": HostPort("0.0.0.0", 9307)})
    configured.settings = configured.settings.model_copy(update={"admin": admin})
    transport = httpx.ASGITransport(site(processes, configured))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9307") as client:
        for path in ("/", "/static/main.js", "/api/summary", "/nothing"):
            answer = await client.get(path)
            assert answer.status_code == 403
            assert "admin.token is not set" in answer.text
        for path in ("/live", "/ready", "/metrics"):
            assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("path", ["/metrics", "/api/summary"])
async def test_many_who_ask_at_once_share_what_was_counted(
    client: httpx.AsyncClient, processes: Processes, path: str
) -> None:
    answers = await asyncio.gather(*(client.get(path) for _ in range(50)))
    assert {each.status_code for each in answers} == {200}
    assert processes.counts < 10


async def test_nothing_is_kept_by_who_stands_between(client: httpx.AsyncClient) -> None:
    for path in ("/live", "/ready", "/metrics", "/api/summary", "/api/settings"):
        assert (await client.get(path)).headers["cache-control"] == "no-store"


async def test_the_share_of_hits_is_that_of_all_reads(
    client: httpx.AsyncClient, processes: Processes
) -> None:
    assert (await client.get("/api/summary")).json()["hit_share"] is None
    processes.total.hits, processes.total.misses = 6, 1
    processes.total.passed.update({"read": 3, "write": 100, "session": 50})
    said = (await client.get("/api/summary")).json()
    assert (said["reads"], said["hit_share"]) == (10, 0.6)
    assert said["warnings"] == {"grants": "SELECT on mysql.user"}


async def test_the_summary_has_what_rates_and_medians_are_made_of(
    client: httpx.AsyncClient, processes: Processes
) -> None:
    assert (await client.get("/api/summary")).json()["cache_on"] is False
    processes.total.cache_on = 1
    processes.total.invalidations["table"] += 2
    processes.total.hit_seconds.observe(0.0002)
    processes.total.upstream_seconds.observe(99.0)
    said = (await client.get("/api/summary")).json()
    assert (said["cache_on"], said["invalidations"]) == (True, 2)
    up_to, hits, mysql = (
        said[name] for name in ("seconds_up_to", "hit_seconds_counts", "mysql_seconds_counts")
    )
    assert len(hits) == len(mysql) == len(up_to) + 1
    assert (hits.index(1), mysql.index(1)) == (up_to.index(0.00025), len(up_to))


async def test_the_page_is_the_same_for_everybody(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", headers={"Host": "sqlcache.example"})
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.text == (await client.get("/")).text


async def test_statements_of_all_processes_are_one_list(client: httpx.AsyncClient) -> None:
    said = (await client.get("/api/statements")).json()
    assert said["total"] == 2
    first, second = said["items"]
    assert (first["statement"], first["kind"], first["calls"]) == ("SELECT ?", "read", 8)
    assert (first["hits"], first["misses"], first["bytes"]) == (6, 2, 60)
    assert (second["bypasses"], second["why_not"]) == (2, "a DO is no query")


async def test_a_list_is_sorted_cut_and_searched(client: httpx.AsyncClient) -> None:
    by_bypasses = (await client.get("/api/statements?sort=bypasses&limit=1")).json()
    assert [each["statement"] for each in by_bypasses["items"]] == ["DO ?"]
    assert by_bypasses["total"] == 2
    found = (await client.get("/api/statements?q=select")).json()
    assert [each["statement"] for each in found["items"]] == ["SELECT ?"]
    assert found["total"] == 1


async def test_tables_of_all_processes_are_one_list(client: httpx.AsyncClient) -> None:
    said = (await client.get("/api/tables")).json()
    assert said["total"] == 2
    first, second = said["items"]
    assert (first["table"], first["hits"], first["invalidations"]) == ("shop.a", 54, 3)
    assert first["writes"] == {"proxy": 3, "api": 0, "flush": 2, "binlog": 0}
    assert (second["table"], second["last_write_s_ago"]) == ("shop.b", 1.0)
    for sort, order in (("writes", "ba"), ("hits", "ab"), ("table", "ab"), ("read_s_ago", "ab")):
        items = (await client.get(f"/api/tables?sort={sort}")).json()["items"]
        assert [each["table"] for each in items] == [f"shop.{letter}" for letter in order], sort
    found = (await client.get("/api/tables?q=shop.B&limit=5")).json()
    assert ([each["table"] for each in found["items"]], found["total"]) == (["shop.b"], 1)


async def test_sessions_of_all_processes_are_one_list(client: httpx.AsyncClient) -> None:
    said = (await client.get("/api/sessions?sort=idle_s")).json()
    assert [each["id"] for each in said["items"]] == [8, 7, 9], "what is not known comes last"
    assert said["total"] == 3
    by_user = (await client.get("/api/sessions?sort=user&limit=2")).json()
    assert [each["user"] for each in by_user["items"]] == ["ann", "bob"]
    for wanted, count in (("bob", 1), ("10.0.0.7", 3), ("select", 3), ("9.5", 0)):
        assert (await client.get(f"/api/sessions?q={wanted}")).json()["total"] == count, wanted


async def test_sessions_are_a_list_with_an_end(
    client: httpx.AsyncClient, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_SESSIONS", 2)
    assert (await client.get("/api/sessions")).json()["total"] == 2


async def test_events_of_all_processes_are_one_list_the_newest_first(
    client: httpx.AsyncClient,
) -> None:
    items = (await client.get("/api/events")).json()["items"]
    assert [each["event"] for each in items] == ["c", "b", "a"]
    of_nodes = (await client.get("/api/events?q=node&sort=s_ago")).json()["items"]
    assert [each["event"] for each in of_nodes] == ["a", "c"]


@pytest.mark.parametrize("path", [each.path for each in lists.LISTS])
async def test_a_list_can_be_sorted_by_what_it_says_and_is_kept_for_nobody(
    client: httpx.AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_FRESH_S", 0.01)
    described = (await client.get("/api/openapi.json")).json()["paths"][path]["get"]
    (sorts,) = (
        each["schema"]["enum"] for each in described["parameters"] if each["name"] == "sort"
    )
    for sort in sorts:
        answer = await client.get(f"{path}?sort={sort}")
        assert answer.status_code == 200, sort
        assert answer.headers["content-type"] == "application/json"
        assert set(answer.json()) == {"items", "total", "age_s"}
    assert (await client.get(f"{path}?sort=fun")).status_code == 422


async def test_a_long_list_comes_whole_and_gives_way_to_others() -> None:
    items = [{"id": number, "text": '"\n€'} for number in range(1_001)]
    with counted_turns() as turns:
        body = json.loads(await lists.listed(items, total=1_001, age_s=0.5))
    assert body == {"items": items, "total": 1_001, "age_s": 0.5}
    assert turns.count > 5
    assert json.loads(await lists.listed([], total=0, age_s=0.0))["items"] == []


async def test_what_was_asked_is_soon_forgotten(
    processes: Processes, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_FRESH_S", 0.5)
    asked = api.Api(processes, configured)
    await asked._fresh(lists.LISTS[0])
    assert asked._kept
    async with asyncio.timeout(20):
        while asked._kept:
            await asyncio.sleep(0.05)


async def test_who_asks_all_the_while_asks_the_processes_seldom(
    client: httpx.AsyncClient, processes: Processes
) -> None:
    for _ in range(10):
        assert (await client.get("/api/statements")).json()["age_s"] < 5
    assert len(processes.asked) == 1


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("sort=fun", "sort = fun: expected one of calls, hits"),
        ("limit=-1", "limit = -1: expected a whole number"),
        ("limit=9999999", "limit = 9999999: expected a whole number"),
        ("page=2", "page: expected sort, limit or q"),
    ],
)
async def test_a_wrong_query_is_said_to_be(
    client: httpx.AsyncClient, query: str, sentence: str
) -> None:
    answer = await client.get(f"/api/statements?{query}")
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]


async def test_nodes_say_how_many_processes_are_without_them(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/nodes")).json()["items"] == [
        {"node": "a:1", "away": 1, "processes": 2}
    ]


async def test_settings_hold_no_secret(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/settings")
    assert answer.json()["memcached.nodes"] == ["a:1", "b:1"]
    assert answer.json()["cache.ttl_s"] == 3600
    assert "secret-password" not in answer.text


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ({"table": "shop.orders"}, ("shop", "orders")),
        ({"schema": "shop"}, ("shop", "")),
        ({"schema": "my.db"}, ("my.db", "")),
        ({"all": True}, ("", "")),
    ],
)
async def test_a_flush_says_what_of(
    client: httpx.AsyncClient, processes: Processes, body: dict[str, Any], about: tuple[str, str]
) -> None:
    assert (await client.post("/api/flush", json=body)).json() == {"flushed": "everything"}
    assert processes.asked == [(Question.FLUSH, *about)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/flush", {}),
        ("/api/flush", {"all": False}),
        ("/api/flush", {"all": 1}),
        ("/api/flush", {"table": "orders"}),
        ("/api/flush", {"table": "a.b.c"}),
        ("/api/flush", {"table": "a.b", "schema": "a"}),
        ("/api/flush", {"tables": "a.b"}),
        ("/api/flush", {"schema": ""}),
        ("/api/flush", {"schema": 65 * "s"}),
        ("/api/flush", {"table": f"s.{65 * 't'}"}),
        ("/api/flush", []),
        ("/api/explain", {"sql": ""}),
        ("/api/explain", {"sql": "x" * (LONGEST_EXPLAINED + 1)}),
        ("/api/explain", {"sql": 5}),
        ("/api/cache", {"enabled": "yes"}),
        ("/api/cache", {}),
    ],
)
async def test_a_wrong_body_does_nothing_and_is_said_to_be_wrong(
    client: httpx.AsyncClient, processes: Processes, path: str, body: Any
) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert processes.asked == []


async def test_a_table_without_its_schema_is_told_what_is_expected(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/api/flush", json={"table": "orders"})
    assert answer.json() == {"error": "table: expected SCHEMA.TABLE, as in shop.orders"}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/explain", b'{"sql": ""}', "sql: expected a text that is not empty"),
        ("/api/explain", b'{"sql": 5}', "sql: expected a text"),
        ("/api/explain", b'{"sql": "\\udcff"}', "expected JSON: lone leading surrogate in hex"),
        ("/api/explain", b"[]", "expected an object"),
        ("/api/flush", b'{"schema": "%b"}' % (65 * b"s"), "schema: expected at most 64 characters"),
        ("/api/flush", b'{"tables": "a.b"}', "tables: there is no such field"),
        ("/api/cache", b"{}", "enabled: is not given"),
        ("/api/cache", b'{"enabled": 1}', "enabled: expected true or false"),
    ],
)
async def test_what_is_wrong_with_a_body_is_said_in_words(
    client: httpx.AsyncClient, path: str, body: bytes, said: str
) -> None:
    answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.json()["error"].startswith(said)


async def test_what_is_no_json_or_too_long_is_refused(
    client: httpx.AsyncClient, processes: Processes
) -> None:
    json_type = {"Content-Type": "application/json"}
    broken = await client.post("/api/flush", content=b'{"all": tr', headers=json_type)
    assert broken.status_code == 422
    long = await client.post("/api/flush", content=b" " * (MAX_BODY_BYTES + 1), headers=json_type)
    assert long.status_code == 413
    assert processes.asked == []


async def test_who_leaves_amid_a_body_is_nothing_to_log(
    processes: Processes, configured: Configured, caplog: pytest.LogCaptureFixture
) -> None:
    server = AdminServer(HostPort("127.0.0.1", 0), site(processes, configured))
    await server.start()
    _, writer = await asyncio.open_connection(server.address.host, server.address.port)
    head = "POST /api/flush HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    await asyncio.sleep(0.05)
    writer.close()
    await asyncio.sleep(0.05)
    await server.stop()
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
    assert processes.asked == []


async def test_a_reload_says_what_applies_and_what_needs_a_restart(
    client: httpx.AsyncClient, configured: Configured
) -> None:
    configured.differing = [("rules", True), ("cache.ttl_s", False)]
    answer = await client.post("/api/reload", json={})
    assert answer.json() == {"changed": ["rules"], "need_restart": ["cache.ttl_s"]}
    configured.differing = ConfigError("rules[0]: expected a table")
    wrong = await client.post("/api/reload", json={})
    assert (wrong.status_code, wrong.json()) == (422, {"error": "rules[0]: expected a table"})


async def test_what_a_process_refuses_is_its_status_and_sentence(
    client: httpx.AsyncClient, processes: Processes
) -> None:
    processes.answer = Refused(404, "there is no table a.b")
    answer = await client.post("/api/flush", json={"table": "a.b"})
    assert (answer.status_code, answer.json()) == (404, {"error": "there is no table a.b"})
    processes.answer = None
    assert (await client.post("/api/flush", json={"all": True})).status_code == 503


async def test_a_page_that_fails_is_500_and_a_log_line(
    client: httpx.AsyncClient, processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    processes.answer = RuntimeError("broken on purpose")
    answer = await client.post("/api/explain", json={"sql": "SELECT 1"})
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error"})
    assert "path=/api/explain" in caplog.text
    assert (await client.get("/live")).status_code == 200


async def test_an_unknown_page_and_a_wrong_method_are_said_to_be(
    client: httpx.AsyncClient,
) -> None:
    unknown = await client.get("/api/nothing")
    assert (unknown.status_code, unknown.json()) == (404, {"error": "there is no such page"})
    wrong = await client.get("/api/flush")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


async def test_all_endpoints_are_described_as_they_are(client: httpx.AsyncClient) -> None:
    said = (await client.get("/api/openapi.json")).json()
    for path, operations in said["paths"].items():
        for method, operation in operations.items():
            answer = await client.request(method, path, json={} if method == "post" else None)
            wants = operation.get("requestBody", {"content": {}})["content"]
            takes = any(each["schema"].get("properties") for each in wants.values())
            assert answer.status_code == (422 if takes else 200), path
            assert wrong_with(answer.json(), answer_of(operation, answer.status_code)) == [], path
    assert {"/api/summary", "/api/statements", "/api/flush"} <= said["paths"].keys()
    flush = said["paths"]["/api/flush"]["post"]["requestBody"]["content"]["application/json"]
    assert set(flush["schema"]["properties"]) == {"table", "schema", "all"}
    json.dumps(said)
