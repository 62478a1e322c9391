"""What an orchestrator asks: does it live, is it ready."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlcache.admin.http import Response

STARTING = "is starting"
DRAINING = "is draining"


@dataclass(frozen=True, slots=True)
class Readiness:
    """By part: the problems that keep clients from being served, and what is merely wrong."""

    problems: Mapping[str, str] = field(default_factory=dict)
    warnings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_all(cls, named: Iterable[tuple[str, Readiness]]) -> Readiness:
        """That of several processes together, each with its name before the parts. As long as one
        can serve clients, the problems of the others are merely wrong."""
        problems: dict[str, str] = {}
        warnings: dict[str, str] = {}
        one_serves = False
        for name, each in named:
            one_serves |= not each.problems
            problems |= {f"{name} {part}": why for part, why in each.problems.items()}
            warnings |= {f"{name} {part}": why for part, why in each.warnings.items()}
        return cls({}, problems | warnings) if one_serves else cls(problems, warnings)


def live() -> Response:
    """200 as long as the event loop turns: it is what answers this."""
    return Response(200, b"ok\n")


def ready(readiness: Readiness) -> Response:
    """200, or 503 while something keeps clients from being served."""
    body = {
        "ready": not readiness.problems,
        "problems": dict(readiness.problems),
        "warnings": dict(readiness.warnings),
    }
    status = 503 if readiness.problems else 200
    return Response(status, json.dumps(body).encode() + b"\n", "application/json")
