"""The examples run, against real servers, and each fits one screen."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from sqlcache.metrics import CONTENT_TYPE

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = EXAMPLES.parent / "docs" / "python.md"
ONE_SCREEN_LINES = 65
TRIES = 5


@pytest.fixture
def environment(
    mariadb: PrivateMariaDB, memcached: PrivateMemcached, schema: str
) -> dict[str, str]:
    """What the examples are told: a shop's database, and memcached. Their account may not read the
    binary log: who begins to follow that forgets everything, a moment later."""
    columns = "id INT PRIMARY KEY, name VARCHAR(20), shelf INT, price DECIMAL(8,2), sold INT"
    mariadb.sql(f"CREATE TABLE product ({columns})", schema)
    rows = ",".join(f"({n}, 'p{n}', {n % 7}, {n}.50, {n})" for n in range(30))
    mariadb.sql(f"INSERT INTO product VALUES {rows}", schema)
    mariadb.sql(
        f"CREATE USER {schema} IDENTIFIED BY 'app'; GRANT ALL ON {schema}.* TO {schema};"
        f"GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO {schema}"
    )
    login = f"{schema}:app@{mariadb.address}"
    return {"DATABASE_URL": f"mysql://{login}/{schema}", "MEMCACHED": memcached.address}


def run_example(name: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def output_of(name: str, environment: dict[str, str]) -> list[str]:
    """The lines an example prints."""
    done = run_example(name, environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["fastapi_app.py", "script.py", "sqlalchemy_app.py"])
def test_what_is_not_given_is_said(name: str) -> None:
    given = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("DATABASE_URL is not set\n")
    assert re.search(rf"DATABASE_URL=mysql://\S+ .*{name.partition('.')[0]}", done.stderr)


def test_the_script_asks_mysql_again_only_after_the_change(environment: dict[str, str]) -> None:
    asked, first, second, again, changed = output_of("script.py", environment)
    assert asked == again == "asking MySQL for shelf 3"
    assert first == second
    assert "price=Decimal('17.50')" in first
    assert "price=Decimal('18.50')" in changed


async def test_the_fastapi_app_serves_what_is_there_now(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module("fastapi_app")
    transport = httpx.ASGITransport(module.app)
    async with (
        module.lifespan(module.app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        for _ in range(2):
            assert [each["id"] for each in (await client.get("/shelves/3")).json()] == [24, 17, 10]
        price = {"price": "5.00"}
        changed = (await client.put("/products/17/price", params=price)).json()
        assert changed == {"id": 17, "name": "p17", "price": "5.00"}
        assert (await client.get("/shelves/3")).json()[1] == changed
        assert (await client.put("/products/999/price", params=price)).status_code == 404
        metrics = await client.get("/metrics")
        assert "sqlcache_function_hits_total 1\n" in metrics.text
        assert metrics.headers["Content-Type"] == CONTENT_TYPE


def test_the_sqlalchemy_app_sees_its_own_change(
    environment: dict[str, str], memcached: PrivateMemcached
) -> None:
    for store in (environment["MEMCACHED"], "memory"):
        hits: list[int] = []
        while not hits or (max(hits) < 4 and len(hits) < TRIES):  # a pause takes some
            memcached.flush()  # else it serves nothing before it knows of all writes there
            *loads, title, told = output_of("sqlalchemy_app.py", environment | {"MEMCACHED": store})
            assert loads == ["Ada ['Notes', 'Letters']"] * 4 + ["Ada ['Sketches', 'Letters']"]
            assert title == "Sketches"
            hits.append(int(told.removeprefix("hits: ")))
        assert max(hits) >= 4


def test_each_table_that_the_pages_and_examples_make_has_a_place_of_its_own(
    mariadb: PrivateMariaDB, schema: str
) -> None:
    """On one server, in the schemas that they name, after the test's own name."""
    (page,) = re.findall(r"```sql\n(CREATE DATABASE.*?)```", PAGE.read_text(), re.DOTALL)
    mariadb.sql(re.sub(r"\bshop\b", f"{schema}_shop", page))
    text = (EXAMPLES / "shop.py").read_text()
    (filled,), (read,) = re.findall(r"-p (\w+) <", text), re.findall(r"3307/(\w+) ", text)
    assert filled == read
    store = f"{schema}_{filled}"
    mariadb.sql(f"CREATE DATABASE IF NOT EXISTS {store}")
    mariadb.sql((EXAMPLES.parent / "docker" / "mysql" / "2-shop.sql").read_text(), store)
    mariadb.sql(f"DROP DATABASE IF EXISTS {store}; DROP DATABASE IF EXISTS {schema}_shop")


@pytest.mark.parametrize("name", ["fastapi_app.py", "script.py", "sqlalchemy_app.py"])
def test_the_catalog_is_read_by_the_account_that_is_named_for_it(
    name: str, environment: dict[str, str]
) -> None:
    named = environment | {"SERVICE_URL": "mysql://service:pw@127.0.0.2:3306"}
    done = run_example(name, named)
    assert done.returncode == 1
    assert "service_url = mysql://service:***@127.0.0.2:3306: expected an account of" in done.stderr


OF_THE_PYTHON_DOOR = sorted(set(EXAMPLES.glob("*.py")) - {EXAMPLES / "shop.py"})


@pytest.mark.parametrize("example", OF_THE_PYTHON_DOOR, ids=lambda path: path.name)
def test_an_example_fits_one_screen(example: Path) -> None:
    assert len(example.read_text().splitlines()) <= ONE_SCREEN_LINES


def test_the_script_has_few_lines() -> None:
    assert len((EXAMPLES / "script.py").read_text().splitlines()) <= 45
