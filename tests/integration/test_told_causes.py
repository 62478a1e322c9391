"""Why everything was forgotten: the runbook has each cause that a running sqlcache tells of."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache, wait_until
from tests import web
from tests.conftest import ProxyFactory

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
RIGHTS = "SELECT, SHOW VIEW, TRIGGER"


def causes(server: PrivateSqlcache) -> set[str]:
    """What `/api/events` has told."""
    events = json.loads(server.fetch("/api/events"))["items"]
    told = (each["event"] for each in events if each["kind"] == "root")
    return {text.removeprefix("everything is forgotten: cause ") for text in told}


def in_the_runbook(cause: str) -> bool:
    """Whether one of the table's texts is this one; `…` stands for anything, `VERB` for a word."""
    (runbook,) = re.findall(
        r"^### SqlcacheRootInvalidations\n(.*?)^### ",
        OPERATIONS.read_text(),
        re.DOTALL | re.MULTILINE,
    )
    first = [line.split(" | ")[0] for line in runbook.splitlines() if line.startswith("| ")]
    known = [re.escape(text) for cell in first for text in re.findall(r"`([^`]+)`", cell)]
    return any(
        re.fullmatch(each.replace("…", ".*").replace("VERB", "[A-Z]+"), cause, re.DOTALL)
        for each in known
    )


def test_each_cause_that_is_told_is_in_the_runbook(
    proxy: ProxyFactory, mariadb: PrivateMariaDB, memcached: PrivateMemcached, schema: str
) -> None:
    mariadb.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (1)", schema)
    mariadb.sql(
        "CREATE PROCEDURE runs() BEGIN PREPARE p FROM 'UPDATE t SET v = 2'; EXECUTE p; END", schema
    )
    service = f"{mariadb.service_user}@'%'"
    account = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    server = proxy(
        mariadb, memcached, upstream__catalog_refresh_s=0.2, proxy__max_statement_bytes=1024
    )
    with closing(server.connect(**account)) as session, session.cursor() as cursor:
        cursor.execute("CALL runs()")
        cursor.execute("CREATE USER IF NOT EXISTS causes@'%'")
        cursor.execute(f"GRANT SELECT ON {schema}.* TO causes@'%'")
        cursor.execute("DROP USER causes@'%'")
        cursor.execute(f"UPDATE t SET v = 4 WHERE v IN (1{', 1' * 1024})")
        flush = f"http://127.0.0.1:{server.admin_port}/api/flush"
        web.post(flush, json={"all": True}).raise_for_status()
        mariadb.sql(f"REVOKE {RIGHTS} ON *.* FROM {service}")
        try:
            wait_until(lambda: "grants" in server.readiness()["warnings"], 20, "the warning")
            cursor.execute("UPDATE t SET v = 3")
        finally:
            mariadb.sql(f"GRANT {RIGHTS} ON *.* TO {service}")
    told = causes(server)
    assert "the service account lacks rights, and there was a write" in told
    assert len(told) >= 7, told
    assert [cause for cause in told if not in_the_runbook(cause)] == []
