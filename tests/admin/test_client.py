"""Who asks at an address where another program listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from sqlcache.cli import main


@contextmanager
def program(status: int, body: bytes) -> Iterator[str]:
    """The address of one that answers everything so."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody wants to know."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [200, 401, 404])
@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"detail": "Not Found"}', b"[]", b"7"])
@pytest.mark.parametrize("command", [["flush", "--all"], ["stats", "--statements"]])
def test_another_program_is_told_from_a_sqlcache(
    status: int, body: bytes, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with program(status, body) as address:
        assert main([*command, "--admin", address]) == 2
        said = capsys.readouterr().err
    assert said == f"sqlcache: admin.listen = {address}: what answers is no sqlcache\n"


def test_what_a_sqlcache_refuses_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with program(422, b'{"error": "sort = fun: expected one of hits"}') as address:
        assert main(["stats", "--statements", "--admin", address]) == 2
        said = capsys.readouterr().err
    assert said == f"sqlcache: the sqlcache at {address} says: sort = fun: expected one of hits\n"


@pytest.mark.parametrize("command", [["flush", "--all"], ["stats", "--statements"], ["top"]])
def test_who_asks_without_an_address_is_told_how_to_give_it(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # there is no file with it
    monkeypatch.delenv("SQLCACHE_ADMIN", raising=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(command) == 2
    assert capsys.readouterr().err == (
        "sqlcache: admin.listen: is not set; give the HOST:PORT of the running sqlcache as --admin,"
        " as SQLCACHE_ADMIN, or by its file, as --config\n"
    )
