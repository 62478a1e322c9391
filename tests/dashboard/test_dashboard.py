"""The dashboard in a real Chromium, over a real sqlcache, MariaDB and memcached."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from tests import web
from tests.coherence.sessions import is_ready
from tests.conftest import ProxyFactory
from tests.dashboard.browser import NAME_OF_ELSEWHERE, Browser, column
from tests.dashboard.test_lists import SUMMARY
from tests.servers import PATIENT

RANDOM = "calls RAND(), which is not deterministic"
MARKUP = "<img src=x onerror=alert(1)>"
REFUSED = "error: Failed to load resource: the server responded with a status of 401 (Unauthorized)"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def served(
    mariadb: PrivateMariaDB, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateSqlcache]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("dashboard")
        memcached = stack.enter_context(PrivateMemcached(folder / "memcached"))
        nodes = (memcached.address,)
        proxy = PrivateSqlcache(folder / "sqlcache", mariadb.service_url, nodes, **PATIENT)
        yield stack.enter_context(proxy)


@pytest.fixture
def run(served: PrivateSqlcache, mariadb: PrivateMariaDB, schema: str) -> Run:
    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", schema)
    mariadb.sql("INSERT INTO t VALUES (1, 10), (2, 20)", schema)
    account = {"user": mariadb.user, "password": mariadb.password}

    def ran(*statements: str) -> Any:
        connection = served.connect(**account, database=schema, autocommit=True)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    return ran


def row_of(page: Page, statement: str) -> Any:
    return page.locator("#statements tbody tr").filter(has_text=statement)


def cell_of(page: Page, statement: str, title: str) -> Any:
    cells = row_of(page, statement).locator("th, td")
    return cells.nth(column(page, "statements", title))


def test_it_loads_and_shows_each_list(browser: Browser, served: PrivateSqlcache, run: Run) -> None:
    run("SELECT v FROM t")
    page = browser.open(served.admin_port)
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("#facts")).to_contain_text("1 process")
    expect(page.locator("figure:not([hidden]) canvas")).to_have_count(4)
    expect(row_of(page, "SELECT v FROM t").first).to_be_visible()
    expect(page.locator("#tab-nodes")).to_be_visible()
    for tab in page.get_by_role("tab").all():
        tab.click()
        panel = page.locator(f"#{tab.get_attribute('aria-controls')}")
        expect(panel).to_be_visible()
        expect(panel.locator("tbody tr, p.nothing:not([hidden])").first).to_be_visible()
    page.click("#tab-settings")
    row = page.locator("#settings tbody tr").filter(has_text="upstream.url")
    expect(row.locator("td")).to_contain_text("mysql://")


def test_what_other_tests_make_up_has_what_a_real_summary_has(served: PrivateSqlcache) -> None:
    said = web.get(f"http://127.0.0.1:{served.admin_port}/api/summary").json()
    assert set(said) == set(SUMMARY)
    assert set(said["shadow"]) == set(SUMMARY["shadow"])


def test_figures_follow_what_is_run(browser: Browser, served: PrivateSqlcache, run: Run) -> None:
    page = browser.open(served.admin_port)
    expect(page.locator("#share-all")).not_to_be_empty()
    before = page.inner_text("#share-all")
    saved = page.inner_text("#saved-all")
    run(*["SELECT SUM(v) FROM t WHERE id < 2"] * 30, "SET @x = 1")
    expect(page.locator("#share-all")).not_to_have_text(before)
    expect(page.locator("#share-now")).to_have_text(re.compile(r"^[89][0-9]\.[0-9] %$"))
    expect(page.locator("#rate-now")).to_have_text(re.compile(r"^[1-9][0-9.]*/s$"))
    expect(page.locator("#latency-now")).to_have_text(
        re.compile(r"^[0-9.]+ [µm]?s / [0-9.]+ [µm]?s$")
    )
    expect(page.locator("#saved-all")).not_to_have_text(saved)
    expect(row_of(page, "SELECT SUM( v )").first).to_be_visible()
    # The list may have been asked for amid the thirty.
    expect(cell_of(page, "SELECT SUM( v )", "Calls")).to_have_text("30")
    expect(cell_of(page, "SELECT SUM( v )", "Hits")).to_have_text("96.7 %")


def test_the_title_tells_the_share_of_hits_now(
    browser: Browser, served: PrivateSqlcache, run: Run
) -> None:
    page = browser.open(served.admin_port)
    both = "[document.title, document.querySelector('#share-now').innerText]"

    def agree() -> bool:
        """While there is a share: it is that of the last seconds."""
        run(*["SELECT SUM(v) FROM t WHERE id < 3"] * 10)
        title, share = page.evaluate(both)
        return bool(share.endswith(" %") and title == f"{share.partition('.')[0]} % · sqlcache")

    wait_until(agree, 20, "the share of hits in the title")


def test_what_is_not_cached_is_found_sorted_and_explained(
    browser: Browser, served: PrivateSqlcache, run: Run, schema: str
) -> None:
    run(*["SELECT v, RAND() FROM t"] * 40, *["SELECT RAND() FROM t"] * 20, "SELECT id FROM t")
    page = browser.open(served.admin_port)
    panel = page.locator("#statements")
    panel.get_by_label("Why not cached").select_option(RANDOM)
    rows = panel.locator("tbody tr")
    expect(rows).to_have_count(2)
    head = panel.locator("thead th").nth(column(page, "statements", "Not cached"))
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(rows.nth(0)).to_contain_text("SELECT v , RAND( )")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(rows.nth(0)).to_contain_text("SELECT RAND( )")
    panel.get_by_role("searchbox").fill("v , rand")
    expect(rows).to_have_count(1)
    expect(cell_of(page, "SELECT v , RAND( )", "Why not")).to_have_text(RANDOM)
    rows.get_by_role("button", name="Explain").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".verdict")).to_have_text(f"Not cached: {RANDOM}")
    dialog.get_by_label("Statement; it is not run").fill("SELECT v FROM t WHERE id = 1")
    dialog.get_by_role("button", name="Explain").click()
    expect(dialog.locator(".verdict")).to_have_text("Cached")
    expect(dialog.locator("dl")).to_contain_text(f"{schema}.t")


def test_answers_are_forgotten_after_a_question(
    browser: Browser, served: PrivateSqlcache, run: Run, mariadb: PrivateMariaDB, schema: str
) -> None:
    read = "SELECT v FROM t WHERE id = 2"
    run(*[read] * 3)
    mariadb.sql("UPDATE t SET v = 21 WHERE id = 2", schema)  # around sqlcache
    assert run(read) == ((20,),)
    page = browser.open(served.admin_port)
    page.click("#open-flush")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Its name").fill(f"{schema}.nothing")
    dialog.get_by_role("button", name="Forget").click()
    expect(dialog.get_by_role("alert")).to_have_text(
        f"Not done: there is no table {schema}.nothing."
    )
    browser.complaints.clear()  # of the 404
    dialog.get_by_role("button", name="Cancel").click()
    assert run(read) == ((20,),)
    page.click("#open-flush")
    dialog.get_by_label("Its name").fill(f"{schema}.t")
    dialog.get_by_role("button", name="Forget").click()
    expect(page.locator("#told")).to_have_text(f"Forgotten: {schema}.t.")
    assert run(read) == ((21,),)


def test_the_cache_is_switched_off_after_a_question_and_on(
    browser: Browser, served: PrivateSqlcache, run: Run
) -> None:
    page = browser.open(served.admin_port)
    switch = page.get_by_role("switch", name="Cache")
    expect(switch).to_have_attribute("aria-checked", "true")
    switch.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    expect(switch).to_have_attribute("aria-checked", "true")
    switch.click()
    dialog.get_by_role("button", name="Switch off").click()
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(page.locator("#state")).to_have_text("ready, cache off")
    hits = served.metrics()["sqlcache_hits_total"]
    run(*["SELECT v FROM t"] * 3)
    assert served.metrics()["sqlcache_hits_total"] == hits
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")
    run(*["SELECT v FROM t"] * 3)
    assert served.metrics()["sqlcache_hits_total"] > hits


def test_markup_in_a_statement_stays_text(
    browser: Browser, served: PrivateSqlcache, run: Run
) -> None:
    run(f"SELECT v AS `{MARKUP}` FROM t", f"SELECT UUID() AS `{MARKUP}`")
    page = browser.open(served.admin_port)
    page.on("dialog", lambda _: browser.complaints.append("a script of a statement ran"))
    row = row_of(page, "UUID( ) AS").filter(has_text=MARKUP)
    expect(row).to_be_visible()
    row.get_by_role("button", name="Explain").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("dl")).to_contain_text(MARKUP)
    expect(page.locator("img")).to_have_count(1)  # the page's own


def test_a_script_of_somebody_else_does_not_run(browser: Browser, served: PrivateSqlcache) -> None:
    page = browser.open(served.admin_port)
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
            document.body.insertAdjacentHTML("beforeend", "<img src=data: onerror='ran = true'>");
        }"""
    )

    def refused() -> int:
        page.wait_for_timeout(50)
        return sum("Content Security Policy" in each for each in browser.complaints)

    wait_until(lambda: refused() >= 2, 20, "that both were refused")
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert refused() == 2
    browser.complaints.clear()


def test_a_token_is_asked_for_once(
    browser: Browser, mariadb: PrivateMariaDB, proxy: ProxyFactory, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("a-long-token\n")
    served = proxy(mariadb, "memory", admin__token_file=str(file))
    page = browser.open(served.admin_port)
    dialog = page.get_by_role("dialog", name="Token")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Token").fill("another")
    dialog.get_by_role("button", name="Open").click()
    expect(dialog.get_by_role("alert")).to_have_text("This is not the token.")
    expect(page.locator("#facts")).to_be_empty()
    dialog.get_by_label("Token").fill("a-long-token")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#state")).to_have_text("ready")
    page.reload()
    expect(page.locator("#state")).to_have_text("ready")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Forget the token").click()
    expect(dialog).to_be_visible()
    assert set(browser.complaints) == {REFUSED}
    browser.complaints.clear()


def test_who_may_not_ask_is_told_why(browser: Browser, served: PrivateSqlcache) -> None:
    page = browser.open(served.admin_port, host=NAME_OF_ELSEWHERE)
    sentence = "expected a Host of this machine, as in 127.0.0.1"
    expect(page.get_by_role("alert").filter(has_text=sentence)).to_be_visible()
    expect(page.locator("#state")).to_have_text("refused")
    browser.complaints.clear()  # of the 403


def test_a_node_that_is_away_is_seen_and_so_is_its_return(
    browser: Browser, mariadb: PrivateMariaDB, memcached: PrivateMemcached, proxy: ProxyFactory
) -> None:
    served = proxy(mariadb, memcached, memcached__outage_s=2)
    page = browser.open(served.admin_port)
    page.click("#tab-nodes")
    row = page.locator("#nodes tbody tr").filter(has_text=memcached.address)
    expect(row).to_contain_text("there")
    memcached.kill()
    expect(page.locator("#warnings")).to_have_text(
        f"memcached {memcached.address}: is away, or not trusted yet"
    )
    expect(page.locator("#state")).to_have_text("ready, 1 warning")
    expect(row).to_contain_text("away")
    expect(page.locator("#tab-nodes")).to_have_attribute("data-bad", "1 away")
    memcached.restart()
    expect(page.locator("#warnings")).to_be_hidden()
    expect(page.locator("#state")).to_have_text("ready")
    expect(row).to_contain_text("there")


def test_a_sqlcache_that_is_restarted_is_missed_and_found_again(
    browser: Browser, served: PrivateSqlcache
) -> None:
    page = browser.open(served.admin_port)
    expect(page.locator("#state")).to_have_text("ready")
    served.stop()
    expect(page.locator("#trouble")).to_contain_text("sqlcache does not answer. The figures are of")
    expect(page.locator("#state")).to_have_text("no answer")
    served.restart()
    expect(page.locator("#trouble")).to_be_hidden()
    wait_until(lambda: is_ready(served), 20, "the node to be trusted")
    expect(page.locator("#state")).to_have_text("ready")
    assert all("ERR_CONNECTION_REFUSED" in each for each in browser.complaints)
    browser.complaints.clear()


def test_the_keyboard_reaches_everything(
    browser: Browser, served: PrivateSqlcache, run: Run
) -> None:
    run("SELECT v FROM t", "SELECT RAND()")
    page = browser.open(served.admin_port)
    expect(row_of(page, "SELECT RAND( )").first).to_be_visible()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
        if reached[-1] == "Calls":
            break
    assert {"Explain…", "Forget answers…", "Statement"} <= set(reached)
    assert reached[-1] == "Calls"
    ring = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(ring) == "solid"
    head = page.locator("#statements thead th").nth(column(page, "statements", "Calls"))
    expect(head).to_have_attribute("aria-sort", "descending")
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    page.focus("#tab-statements")
    page.keyboard.press("End")
    expect(page.locator("#tab-settings")).to_be_focused()
    expect(page.locator("#settings tbody tr").first).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#statements")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_as_light_or_dark_as_the_browser_unless_somebody_chooses(
    browser: Browser, served: PrivateSqlcache, scheme: str
) -> None:
    other = {"light": "dark", "dark": "light"}[scheme]
    page = browser.open(served.admin_port, color_scheme=scheme)
    assert brightness(page) == scheme
    page.get_by_label("Theme").select_option(other)
    assert brightness(page) == other
    page.reload()
    assert brightness(page) == other
    page.get_by_label("Theme").select_option("system")
    assert brightness(page) == scheme


def brightness(page: Page) -> str:
    """That of the page; its text's is the other one."""
    script = "name => getComputedStyle(document.body)[name].match(/[0-9.]+/g).map(Number)"
    ground, text = page.evaluate(script, "backgroundColor"), page.evaluate(script, "color")
    assert abs(sum(ground) - sum(text)) > 450, "nobody can read this"
    return "light" if sum(ground) > sum(text) else "dark"


def test_shadow_mode_says_what_would_have_been(
    browser: Browser,
    proxy: ProxyFactory,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
) -> None:
    mariadb.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    served = proxy(mariadb, memcached, cache__mode="shadow")
    account = {"user": mariadb.user, "password": mariadb.password}
    connection = served.connect(**account, database=schema, autocommit=True)
    page = browser.open(served.admin_port)
    expect(page.locator("#state")).to_have_text("ready, shadow mode")
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT v FROM t")
        for _ in range(3):
            cursor.execute("SELECT v FROM t")
        expect(page.locator("#share-all")).to_have_text("would be 75.0 % since the start: 3 of 4")
        mariadb.sql("UPDATE t SET v = 2", schema)
        cursor.execute("SELECT v FROM t")
        expect(page.locator("#share-all")).to_have_text(
            "would be 80.0 % since the start: 4 of 5 · 1 not as MySQL answers"
        )
    page.click("#cache-switch")
    page.get_by_role("button", name="Switch off").click()
    expect(page.locator("#state")).to_have_text("ready, cache off")
