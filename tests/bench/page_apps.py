"""What the pages' apps have in common, and the one in Django."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from sqlcache.demo.servers import HOST, NotStarted, PrivateServer, PrivateSqlServer
from tests import fetched
from tests.bench.page_client import Client, Page, Site

SITES = Path(__file__).with_name("sites")
FETCHED = Path(__file__).parents[2] / ".pages"
"""Where what the apps need is kept from one run to the next."""
PROCESSES = 4
"""Of an app: as many as there are clients at most."""
PASSWORD = secrets.token_urlsafe(9)
"""Of the one who may see all, in every app."""


class Database(NamedTuple):
    """Where an app's schema is, and the login it has."""

    port: int
    user: str
    password: str
    name: str

    def environment(self) -> dict[str, str]:
        """What the apps' own settings read."""
        told = {"NAME": self.name, "USER": self.user, "PASSWORD": self.password}
        return {f"PAGES_DB_{name}": value for name, value in told.items()}


class App(ABC):
    """An app with pages. What it needs is fetched into a folder, once."""

    name: str
    schema: str
    """What its schemas are called first; apps with the same one share what is in them."""
    pages: Sequence[Page]
    noise: re.Pattern[bytes]
    """What is new in each answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def fetch(self) -> str:
        """Gets what it needs; returns what that is, with its version. Raises: NotFetched."""

    @abstractmethod
    def fill(self, folder: Path, database: Database) -> None:
        """Makes its tables, in an empty schema. Raises: NotStarted."""

    def fill_past(self, server: PrivateSqlServer, folder: Path, database: Database) -> None:
        """Makes its tables, past whatever proxy the database is reached by. Raises: NotStarted."""
        self.fill(folder, database._replace(port=server.port))
        # Else its plans may differ from schema to schema.
        for (table,) in server.sql("SHOW TABLES", database.name):
            server.sql(f"ANALYZE TABLE `{table}`", database.name)

    @abstractmethod
    def serve(self, stack: ExitStack, folder: Path, database: Database) -> int:
        """Starts it; returns the port where it answers."""

    @abstractmethod
    def sign_in(self, client: Client) -> Site:
        """As one who may see all. Raises: WrongPage."""

    def site(self, stack: ExitStack, folder: Path, database: Database) -> Site:
        """Starts it, and signs somebody in."""
        with closing(Client(Site(self.serve(stack, folder, database)))) as client:
            return self.sign_in(client)


def run(command: Sequence[str], environment: Mapping[str, str], what: str, *, says: str) -> None:
    """Runs a program to its end, where it says that all is well. Raises: NotStarted with the end
    of what it said."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not done.stdout.endswith(says + "\n"):
        raise NotStarted(f"{what} failed; it says:\n{(done.stdout + done.stderr)[-2000:]}")


class AppServer(PrivateServer):
    """A server with processes below it, and with an environment of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._given = environment

    def command(self) -> list[str]:
        # Not killed where we end before it, but told: else the processes below it would go on.
        setpriv = shutil.which("setpriv")
        told = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
        return [*told, *self.program()]

    @abstractmethod
    def program(self) -> list[str]:
        """The program and its options, for `self.port`."""

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._given}


class Gunicorn(AppServer):
    """gunicorn with processes that do one page at a time."""

    name = "gunicorn"

    def __init__(self, folder: Path, python: Path, environment: Mapping[str, str]) -> None:
        super().__init__(folder, environment)
        self._python = python

    def program(self) -> list[str]:
        options = [f"--bind={self.address}", f"--workers={PROCESSES}", "--worker-class=sync"]
        return [str(self._python), "-m", "gunicorn", *options, "--no-control-socket", "shop.wsgi"]

    def answers(self) -> bool:
        return f"Listening at: http://{self.address}" in self.log_text()


class Django(App):
    """A shop on gunicorn, with mysqlclient; `kept`: a process keeps its connection to MySQL, else
    each page has one of its own."""

    schema = "shop"
    noise = re.compile(rb'(?<=name="csrfmiddlewaretoken" value=")\w+')
    pages = (
        Page("list", "/", b"1800 products, page 1"),
        Page("detail", "/product/1234/", b"<h1>Product 1233 ", signed_in=True),
        Page("search", "/search/?q=nostrud+quis", b"<h1>Search: nostrud quis</h1>"),
        Page("API", "/api/products/?page=3", b'"count": 1800'),
        Page("admin", "/admin/shop/product/", b"2000 products", signed_in=True),
    )
    # The newest that runs on Python 3.11, and a long-term one.
    _VERSION = "5.2"
    _NEEDS = (f"Django~={_VERSION}.0", "gunicorn>=23", "mysqlclient>=2.2")

    def __init__(self, folder: Path, *, kept: bool) -> None:
        super().__init__(folder)
        self.name = "Django, connection kept" if kept else "Django, a connection a page"
        self._max_age = "None" if kept else "0"

    def fetch(self) -> str:
        python = fetched.environment(self.folder, "django", *self._NEEDS)
        command = [str(python), "-m", "django", "--version"]
        return f"Django {fetched.fetch(command, self.folder, 'Django').strip()}"

    def fill(self, folder: Path, database: Database) -> None:
        command = [str(self._python), "-m", "shop.fill", PASSWORD]
        run(command, self._environment(database), "filling the shop", says="2000 products")

    def serve(self, stack: ExitStack, folder: Path, database: Database) -> int:
        server = Gunicorn(folder, self._python, self._environment(database))
        return stack.enter_context(server).port

    def sign_in(self, client: Client) -> Site:
        return client.sign_in(
            "/admin/login/", {"username": "admin", "password": PASSWORD, "next": "/admin/"}
        )

    @property
    def _python(self) -> Path:
        return self.folder / "django" / "bin" / "python"

    def _environment(self, database: Database) -> dict[str, str]:
        return {
            **database.environment(),
            "PAGES_DB_HOST": HOST,
            "PAGES_DB_PORT": str(database.port),
            "PAGES_CONN_MAX_AGE": self._max_age,
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "PYTHONPATH": str(SITES),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
