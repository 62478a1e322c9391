"""A client that sends a statement again and again while something else is measured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def sent_meanwhile(connection: Any, text: str, every_s: float = 0) -> Iterator[None]:
    """While this lasts a statement is sent on the connection, with so long a pause between."""
    stopped = threading.Event()

    def send() -> None:
        with connection.cursor() as cursor:
            while not stopped.wait(every_s):
                cursor.execute(text)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stopped.set()
        sender.join()
