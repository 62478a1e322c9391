"""The dashboard's lists in a real Chromium, over the answers of an API that is made up: of lengths,
texts and changes that take long to come about."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from sqlcache.admin import dashboard
from sqlcache.demo.servers import wait_until
from tests.dashboard.browser import Browser, column

STATIC = Path(dashboard.__file__).with_name("static")
MARKUP = "<img src=x onerror=alert(1)>"
LONGEST_S = 0.5
"""What people wait for without noticing that they do."""


def statement(number: int, **other: Any) -> dict[str, Any]:
    text = f"SELECT a{number} FROM t WHERE id = ? AND name = ? ORDER BY b LIMIT ?" + " " * 400
    return {
        "statement": text,
        "kind": "read",
        "schema": "shop",
        "calls": 2 * number,
        "hits": number,
        "misses": 1,
        "bypasses": number % 7,
        "fills": 1,
        "refills_same": 0,
        "why_not": "a write is in flight" if number % 7 else None,
        "passed": {},
        "hit_mean_s": 2e-4,
        "hit_p99_s": 5e-4,
        "mysql_mean_s": 3e-3,
        "mysql_p99_s": 5e-3,
        "saved_s": 0.0028 * number,
        "bytes": 100 * number,
        "seen_s_ago": 1.0,
        **other,
    }


def table(number: int) -> dict[str, Any]:
    return {
        "table": f"shop.table_{number:04}",
        "hits": 3 * number,
        "misses": number,
        "writes": {"proxy": number % 11, "api": 0, "flush": 0, "binlog": 0},
        "invalidations": number % 13,
        "fills": number,
        "last_write_s_ago": None if number % 2 else 3.0,
        "read_s_ago": 1.0,
    }


def session(number: int, **other: Any) -> dict[str, Any]:
    return {
        "id": number,
        "user": "shop",
        "address": "10.0.0.7:51034",
        "schema": "shop",
        "pid": 7,
        "state": "idle",
        "in_transaction": False,
        "cacheable": True,
        "why_not": "",
        "statement": "SELECT ?",
        "connected_s": 70.0,
        "idle_s": 3.5,
        **other,
    }


def event(number: int, **other: Any) -> dict[str, Any]:
    at = f"2026-11-24T09:15:{number:02}+00:00"
    told = {"event": "memcached 10.0.0.9:11211 is away", "pid": 7}
    return {"at": at, "s_ago": 90.0 - number, "kind": "memcached", **told, **other}


SUMMARY: dict[str, Any] = {
    "version": "0.1.0",
    "kernel": "compiled",
    "up_s": 10.0,
    "ready": True,
    "problems": {},
    "warnings": {},
    "workers": 1,
    "connections": 3,
    "cache_on": True,
    "reads": 20,
    "hits": 10,
    "misses": 5,
    "hit_share": 0.5,
    "passed": {"read": 5},
    "bypasses": {},
    "fills": 1,
    "invalidations": 0,
    "refills_same": 0,
    "hit_seconds": 0.002,
    "mysql_seconds": 0.05,
    "seconds_up_to": [0.001, 0.01],
    "hit_seconds_counts": [10, 0, 0],
    "mysql_seconds_counts": [0, 10, 0],
    "mode": "on",
    "shadow": {"hits": 0, "hit_share": None, "mysql_seconds": 0.0, "stale": 0, "compared": 0},
    "verified": {},
    "nodes_away": 0,
    "binlog": {
        **dict.fromkeys(("following", "lagging", "hindered", "lag_s", "lag_bytes", "file"), 0),
        **dict.fromkeys(("position", "events", "transactions", "bumps", "turns", "gaps"), 0),
    },
}


class MadeUp:
    """The API's answers by path, to be changed; `asked` is what was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.summary: dict[str, Any] = dict(SUMMARY)
        self.lists: dict[str, list[dict[str, Any]]] = {
            "statements": [statement(1)],
            "tables": [table(1)],
            "sessions": [session(1)],
            "events": [event(1)],
            "nodes": [{"node": "a:1", "away": 0, "processes": 1}],
        }

    def answer(self, route: Route) -> None:
        path = route.request.url.partition("/api/")[2].partition("?")[0]
        self.asked.append(path)
        if path == "summary":
            self.summary["up_s"] += 2.0
            said: Any = self.summary
        elif path == "openapi.json":
            said = {"paths": dict.fromkeys([*(f"/api/{name}" for name in self.lists)])}
        elif path == "settings":
            said = {}
        else:
            items = self.lists[path]
            cut = [] if "limit=0" in route.request.url else items
            said = {"items": cut, "total": len(items), "age_s": 0.1}
        route.fulfill(body=json.dumps(said), content_type="application/json")


@pytest.fixture
def made_up() -> MadeUp:
    return MadeUp()


def hand_out(route: Route) -> None:
    """The door's own files."""
    path = route.request.url.partition("9307/")[2].removeprefix("static/") or "index.html"
    route.fulfill(path=STATIC / path, headers=dashboard.HEADERS)


@pytest.fixture
def opened(browser: Browser, made_up: MadeUp) -> Callable[[], Page]:
    """Opens the page over what is made up, with a clock that can be put forward."""

    def opened() -> Page:
        page = browser.page()
        page.route("**/*", hand_out)
        page.route("**/api/**", made_up.answer)
        page.on("dialog", lambda _: browser.complaints.append("a script of somebody else ran"))
        page.clock.install()
        page.goto("http://127.0.0.1:9307/")
        return page

    return opened


def seconds_to_sort(page: Page, panel: str, title: str) -> float:
    """From the click on a column's head to the rows being laid out in its order; the best of three.
    Of the processor, in the page's thread: others may keep the machine busy."""
    head = page.locator(f"#{panel} thead th").nth(column(page, panel, title)).locator("button")
    script = """button => {
        button.click();
        document.body.getBoundingClientRect();
    }"""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent_s() -> float:
        figures = devtools.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in figures if each["name"] == "TaskDuration"))

    took = []
    for _ in range(3):
        began = spent_s()
        head.evaluate(script)
        took.append(spent_s() - began)
    devtools.detach()
    assert min(took) > 0
    return min(took)


def wait_for_lists(page: Page, made_up: MadeUp) -> None:
    """Lets the page's clock go on until it has asked for the statements again."""
    asked = made_up.asked.count("statements")
    until = time.monotonic() + 30
    while made_up.asked.count("statements") == asked:
        assert time.monotonic() < until, "nothing was asked for"
        page.clock.run_for(1000)
        page.wait_for_timeout(50)


def first(page: Page, panel: str) -> str:
    return str(page.locator(f"#{panel} tbody tr").first.locator("th").inner_text())


def test_a_thousand_statements_are_sorted_and_leafed_through(
    opened: Callable[[], Page], made_up: MadeUp
) -> None:
    made_up.lists["statements"] = [statement(number) for number in range(1000)]
    page = opened()
    panel = page.locator("#statements")
    expect(panel.locator(".found")).to_have_text("1\u2013100 of 1,000")
    assert first(page, "statements").startswith("SELECT a999 ")
    for title in ("Saved", "Statement", "Not cached", "Calls"):
        assert seconds_to_sort(page, "statements", title) < LONGEST_S
    panel.get_by_role("button", name="Next").click()
    expect(panel.locator(".found")).to_have_text("101\u2013200 of 1,000")
    assert first(page, "statements").startswith("SELECT a899 ")
    panel.get_by_label("Filter").fill("select a12")
    expect(panel.locator(".found")).to_have_text("11 (of 1,000)")
    panel.get_by_label("Filter").fill("nothing of the kind")
    expect(panel.locator("p.nothing")).to_have_text("Nothing matches the filter.")


def test_a_list_that_is_shut_says_how_long_it_is_by_now(
    opened: Callable[[], Page], made_up: MadeUp
) -> None:
    made_up.lists["tables"] = []
    page = opened()
    tab = page.locator("#tab-tables")
    expect(tab).to_have_attribute("data-count", "0")
    made_up.lists["tables"] = [table(number) for number in range(7)]
    page.clock.run_for(15_000)
    expect(tab).to_have_attribute("data-count", "7")


def test_five_thousand_tables_are_sorted(opened: Callable[[], Page], made_up: MadeUp) -> None:
    made_up.lists["tables"] = [table(number) for number in range(5000)]
    page = opened()
    page.click("#tab-tables")
    panel = page.locator("#tables")
    expect(panel.locator(".found")).to_have_text("1\u2013100 of 5,000")
    expect(page.locator("#tab-tables")).to_have_attribute("data-count", "5,000")
    assert first(page, "tables") == "shop.table_4999"
    for title in ("Table", "Last write", "Proxy writes", "Invalidations"):
        assert seconds_to_sort(page, "tables", title) < LONGEST_S
    expect(panel.locator("thead [aria-sort]")).to_have_text("Invalidations")
    cells = panel.locator("tbody tr").first.locator("th, td").all_inner_texts()
    assert cells[column(page, "tables", "Invalidations")] == "12"
    panel.get_by_label("Filter").fill("table_0042")
    expect(panel.locator("tbody tr")).to_have_count(1)
    panel.locator("tbody tr").get_by_role("button", name="Forget").click()
    expect(page.get_by_role("dialog").get_by_label("Its name")).to_have_value("shop.table_0042")


def test_markup_in_names_stays_text(opened: Callable[[], Page], made_up: MadeUp) -> None:
    made_up.lists["sessions"] = [
        session(1, user=MARKUP, address=MARKUP, schema=MARKUP, statement=MARKUP, why_not=MARKUP)
    ]
    made_up.lists["events"] = [event(1, kind=MARKUP, event=MARKUP)]
    made_up.lists["tables"] = [{**table(1), "table": f"shop.{MARKUP}"}]
    made_up.lists["nodes"] = [{"node": MARKUP, "away": 0, "processes": 1, "error": MARKUP}]
    made_up.lists["statements"] = [statement(1, statement=MARKUP, kind=MARKUP, why_not=MARKUP)]
    made_up.summary["warnings"] = {MARKUP: MARKUP}
    page = opened()
    expect(page.locator("#warnings li")).to_have_text(f"{MARKUP}: {MARKUP}")
    for name in made_up.lists:
        page.click(f"#tab-{name}")
        expect(page.locator(f"#{name} tbody tr")).to_contain_text(MARKUP)
    expect(page.locator("img")).to_have_count(1)  # the page's own


def test_sessions_and_events_say_what_goes_on(opened: Callable[[], Page], made_up: MadeUp) -> None:
    busy = {"state": "busy", "in_transaction": True, "cacheable": False}
    why = "the transaction has written"
    made_up.lists["sessions"] = [session(1), session(2, **busy, why_not=why)]
    made_up.lists["events"] = [
        event(number, event=f"event {number}", kind="memcached" if number % 2 else "catalog")
        for number in range(5)
    ]
    page = opened()
    page.click("#tab-sessions")
    page.locator("#sessions").get_by_label("State").select_option("busy")
    expect(page.locator("#sessions tbody tr")).to_have_count(1)
    cells = page.locator("#sessions tbody tr").locator("th, td").all_inner_texts()
    assert cells[:9] == [
        "2",
        "shop",
        "10.0.0.7:51034",
        "shop",
        "busy",
        "open",
        "no",
        why,
        "SELECT ?",
    ]
    page.click("#tab-events")
    shown = page.locator("#events td.whole")
    expect(shown).to_have_text([f"event {number}" for number in (4, 3, 2, 1, 0)])
    page.locator("#events").get_by_label("Kind").select_option("catalog")
    expect(shown).to_have_text(["event 4", "event 2", "event 0"])


def test_how_far_the_log_is_followed_is_shown_where_it_is(
    opened: Callable[[], Page], made_up: MadeUp
) -> None:
    page = opened()
    wait_for_lists(page, made_up)
    expect(page.locator("#binlog")).to_be_hidden()
    followed = {"following": 1, "turns": 1, "file": 7, "position": 4_096, "events": 12}
    made_up.summary["binlog"] |= followed
    wait_for_lists(page, made_up)
    expect(page.locator("#binlog-now")).to_have_text("not at all")
    expect(page.locator("#binlog-all")).to_contain_text("followed to file 7, 4,096")
    made_up.summary["binlog"] |= {"lag_s": 3.5, "lag_bytes": 70_000}
    wait_for_lists(page, made_up)
    expect(page.locator("#binlog-now")).to_have_text("3.50 s, 70,000 bytes")
    made_up.summary["binlog"] |= {"following": 0, "lagging": 1}
    wait_for_lists(page, made_up)
    expect(page.locator("#binlog-all")).to_contain_text("another one follows it, or nobody")


def test_no_row_moves_under_the_pointer(opened: Callable[[], Page], made_up: MadeUp) -> None:
    rows = [statement(number) for number in (10, 20, 30)]
    made_up.lists["statements"] = rows
    page = opened()
    shown = page.locator("#statements tbody tr th")
    expect(shown.first).to_contain_text("SELECT a30 ")
    page.locator("#statements tbody tr").last.hover()
    rows[0]["calls"] = 7777
    wait_for_lists(page, made_up)
    expect(page.locator("#statements tbody")).to_contain_text("7,777")
    expect(shown.last).to_contain_text("SELECT a10 ")
    page.mouse.move(0, 0)
    wait_for_lists(page, made_up)
    expect(shown.first).to_contain_text("SELECT a10 ")


def test_a_list_that_an_older_sqlcache_lacks_is_not_shown(
    browser: Browser, opened: Callable[[], Page], made_up: MadeUp
) -> None:
    del made_up.lists["tables"], made_up.lists["sessions"]
    page = opened()
    expect(page.locator("#tab-events")).to_be_visible()
    expect(page.locator("#tab-tables")).to_be_hidden()
    expect(page.locator("#tab-sessions")).to_be_hidden()
    assert not {"tables", "sessions"} & set(made_up.asked)


def test_nothing_is_asked_while_nobody_looks(opened: Callable[[], Page], made_up: MadeUp) -> None:
    page = opened()
    expect(page.locator("#state")).to_have_text("ready")

    def asked_again() -> bool:
        page.clock.run_for(6000)
        return made_up.asked.count("summary") > 1

    wait_until(asked_again, 15, "the next question")
    asked = made_up.asked.count("summary")
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true})")
    page.clock.run_for(60_000)
    assert made_up.asked.count("summary") <= asked + 1  # what was under way


def test_what_is_empty_says_so(opened: Callable[[], Page], made_up: MadeUp) -> None:
    made_up.lists = {name: [] for name in made_up.lists}
    made_up.summary |= {"hits": 0, "misses": 0, "reads": 0, "passed": {}, "hit_share": None}
    made_up.summary |= {"hit_seconds_counts": [0, 0, 0], "mysql_seconds_counts": [0, 0, 0]}
    page = opened()
    expect(page.locator("#share-all")).to_have_text("no read yet")
    expect(page.locator("#share-now")).to_have_text("\u2013")
    for name in made_up.lists:
        page.click(f"#tab-{name}")
        expect(page.locator(f"#{name} > p.nothing")).to_be_visible()
        expect(page.locator(f"#{name} > p.nothing")).not_to_be_empty()


def test_numbers_are_as_people_read_them(opened: Callable[[], Page]) -> None:
    texts = {
        "duration(null)": "\u2013",
        "duration(0.000152)": "152 µs",
        "duration(0.0009996)": "1.00 ms",
        "duration(0.01234)": "12.3 ms",
        "duration(119.4)": "119 s",
        "duration(250)": "4 min 10 s",
        "duration(3600)": "1 h",
        "duration(190000)": "2 d 4 h",
        "roundDuration(0.0005)": "500 µs",
        "roundDuration(0.0025)": "2.5 ms",
        "roundDuration(10)": "10 s",
        "share(0.99999)": "99.9 %",
        "share(1)": "100.0 %",
        "rate(0.04)": "0.0",
        "rate(1234.5)": "1,235",
        "bytes(999)": "999 B",
        "bytes(67108864)": "67.1 MB",
        "milliseconds(0.000152)": "0.152",
        "ago(1.9)": "now",
        "ago(7199)": "119 min",
    }
    page = opened()
    script = "import('/static/format.js').then(f => f.{})"
    assert {call: page.evaluate(script.format(call)) for call in texts} == texts


def test_a_quantile_lies_within_its_class(opened: Callable[[], Page]) -> None:
    page = opened()

    def quantile(counts: list[int], part: float) -> Any:
        script = """([counts, part]) => import("/static/history.js")
            .then((history) => history.quantile(counts, [0.001, 0.01], part))"""
        return page.evaluate(script, [counts, part])

    assert quantile([0, 0, 0], 0.5) is None
    middle = 0.00316228  # of 1 ms and 10 ms, by logarithm
    assert quantile([0, 100, 0], 0.5) == pytest.approx(middle)
    assert quantile([50, 50, 0], 0.5) == pytest.approx(0.001)
    assert quantile([0, 0, 9], 0.99) == 0.01
