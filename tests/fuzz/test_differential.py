"""A short run of the differential fuzzer; a long one is `python -m tests.fuzz.differential`."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlcache.demo.servers import PrivateMariaDB
from tests.fuzz.differential import Stage, fuzz

_SEED = 81
_RUN_S = 8
_REPORT_S = 300


@pytest.mark.timeout(_RUN_S + _REPORT_S)
def test_random_scripts_are_answered_the_same_through_sqlcache(
    mariadb: PrivateMariaDB, tmp_path: Path
) -> None:
    with Stage(mariadb, tmp_path) as stage:
        reports = fuzz(stage, _SEED, _RUN_S, steps=80)
        print(stage.count)
        assert not reports, "\n".join(reports)
        assert stage.count.hits
        assert "Traceback" not in stage.log_text()
