"""What is told of a server at each reading of its catalog."""

from typing import Any

from sqlcache.metrics import Metrics
from sqlcache.plan.server_watch import ServerWatch
from sqlcache.plan.variables import NEW_SESSIONS_RIGHTS
from sqlcache.sql.catalog.server import Server

ENGINE: Any = None


def rights_of(*accounts: int) -> str:
    rows = frozenset(("%", f"tenant_{each}", "%", "app_role") for each in accounts)
    server = Server(flavour="mysql", version=(9, 7), lower_case_table_names=0, rights=rows)
    told = ServerWatch(ENGINE, Metrics(), None).inherited(server, ())
    return dict(told)[NEW_SESSIONS_RIGHTS]


def test_what_tells_rights_from_others_is_as_short_for_any_number_of_accounts() -> None:
    """It is hashed for each session, whenever that logs in or changes its settings."""
    assert len(rights_of(*range(10_000))) == len(rights_of(1)) < 100
    assert rights_of(1, 2) == rights_of(2, 1) != rights_of(1)
