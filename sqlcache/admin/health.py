"""What an orchestrator asks: does it live, is it ready."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlcache.admin.http import Response


def live() -> Response:
    """200 as long as the event loop turns: it is what answers this."""
    return Response(200, b"ok\n")


def ready(problems: Mapping[str, str]) -> Response:
    """200, or 503 while `problems` (part -> what is wrong with it) keep it from its work."""
    body = json.dumps({"ready": not problems, "problems": dict(problems)}) + "\n"
    return Response(503 if problems else 200, body.encode(), "application/json")
