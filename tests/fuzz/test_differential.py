"""A short run of the differential fuzzer; a long one is `python -m tests.fuzz.differential`."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from sqlcache.demo.servers import PrivateSqlServer
from tests.fuzz.differential import Stage, fuzz

_RUN_S = 8
_REPORT_S = 300


@pytest.mark.timeout(_RUN_S + _REPORT_S)
def test_random_scripts_are_answered_the_same_through_sqlcache(
    upstream: PrivateSqlServer, tmp_path: Path
) -> None:
    seed = secrets.randbelow(1_000_000)
    print(f"seed {seed}")
    with Stage(upstream, tmp_path) as stage:
        reports = fuzz(stage, seed, _RUN_S, steps=80)
        print(stage.count)
        assert not reports, "\n".join(reports)
        assert stage.count.hits
        assert "Traceback" not in stage.log_text()
