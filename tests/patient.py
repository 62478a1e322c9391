"""A `sqlcache serve` that takes who gets no core for some seconds for nobody that stands still: its
workers, and MySQL."""

from __future__ import annotations

from typing import Any

from sqlcache.process import asking, serving
from sqlcache.process.serving import run_worker
from sqlcache.service import check

_WORKERS_ANSWER_WITHIN_S = 15.0
_MYSQL_ANSWERS_WITHIN_S = 8.0


def be_patient() -> None:
    """Makes this process one, and its workers."""
    vars(asking)["_ANSWER_TIMEOUT_S"] = _WORKERS_ANSWER_WITHIN_S
    vars(check)["_PATIENCE_S"] = _MYSQL_ANSWERS_WITHIN_S
    vars(serving)["run_worker"] = run_patient_worker


def run_patient_worker(*given: Any) -> None:
    """What a worker process runs, which has nothing of its parent's."""
    vars(check)["_PATIENCE_S"] = _MYSQL_ANSWERS_WITHIN_S
    run_worker(*given)
