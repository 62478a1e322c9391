"""WordPress on php-fpm and nginx.

Debian's packages of all three are unpacked into a folder: nothing is installed, and no service is
started.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from sqlcache.demo.servers import HOST
from tests import fetched
from tests.bench.page_apps import PASSWORD, PROCESSES, SITES, App, AppServer, Database, run
from tests.bench.page_client import Client, Page, Site
from tests.fetched import NotFetched

_PACKAGES = (
    *("wordpress", "wordpress-theme-twentytwentythree", "nginx-light"),
    *("php-fpm", "php-cli", "php-mysql", "php-xml", "php-mbstring"),
)
_EXTENSIONS = (
    *("mysqlnd", "mysqli", "mbstring", "xml", "dom", "simplexml"),
    *("ctype", "iconv", "tokenizer", "fileinfo"),
)
"""Of PHP, in an order in which each finds what it needs."""


class Programs:
    """What the packages have, under the folder where they are unpacked.

    Raises: NotFetched where a package has not what it is known for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.php = self._only("usr/bin/php[0-9]*.[0-9]")
        self.fpm = self._only("usr/sbin/php-fpm[0-9]*")
        self.nginx = self._only("usr/sbin/nginx")
        self.extensions = self._only("usr/lib/php/2*/mysqli.so").parent
        self.wordpress = self._only("usr/share/wordpress")

    def environment(self) -> dict[str, str]:
        """Libraries of theirs that the machine lacks; and no settings of the machine's own PHP."""
        libraries = os.pathsep.join(map(str, self.root.glob("usr/lib/*-linux-*")))
        return {"LD_LIBRARY_PATH": libraries, "PHP_INI_SCAN_DIR": ""}

    def _only(self, pattern: str) -> Path:
        found = list(self.root.glob(pattern))
        if len(found) != 1:
            raise NotFetched(
                f"{self.root} has {len(found)} files {pattern}, where Debian's packages have 1;"
                " remove that folder, and it is fetched anew"
            )
        return found[0]


def _unpacked(scratch: Path) -> Path:
    """The packages, with all they depend on that is not installed, unpacked into one folder."""
    apt = [fetched.program("apt-get", "the pages of WordPress"), *fetched.apt_options(scratch)]
    fetched.fetch([*apt, "update"], scratch, "the list of Debian's packages")
    # Not installed but downloaded: needs neither the lock of the machine's packages nor rights.
    flags = ["--yes", "--download-only", "--reinstall", "--no-install-recommends"]
    command = [*apt, "-o", "Debug::NoLocking=1", "install", *flags, *_PACKAGES]
    fetched.fetch(command, scratch, f"Debian's packages {', '.join(_PACKAGES)}")
    unpack = fetched.program("dpkg-deb", "the pages of WordPress")
    root = scratch / "root"
    for archive in sorted((scratch / "cache" / "archives").glob("*.deb")):
        fetched.fetch([unpack, "--extract", str(archive), str(root)], scratch, archive.name)
    return root


class PhpFpm(AppServer):
    """php-fpm with processes that do one page at a time, on a socket in its folder."""

    name = "php-fpm"

    def __init__(self, folder: Path, programs: Programs, environment: Mapping[str, str]) -> None:
        super().__init__(folder, environment)
        self.socket = folder / "php.sock"
        self._programs = programs

    def program(self) -> list[str]:
        pool = {
            "listen": self.socket,
            "pm": "static",
            "pm.max_children": PROCESSES,
            "clear_env": "no",
            **({"user": "root", "group": "root"} if os.geteuid() == 0 else {}),
        }
        config = self.folder / "php-fpm.conf"
        config.write_text(
            "[global]\ndaemonize = no\nerror_log = /proc/self/fd/2\n[www]\n"
            + "".join(f"{name} = {value}\n" for name, value in pool.items())
        )
        as_root = ["--allow-to-run-as-root"] if os.geteuid() == 0 else []
        settings = write_php_ini(self.folder, self._programs)
        program = str(self._programs.fpm)
        return [program, "-c", str(settings), "--fpm-config", str(config), *as_root]

    def answers(self) -> bool:
        return "ready to handle connections" in self.log_text()


def write_php_ini(folder: Path, programs: Programs) -> Path:
    """PHP's settings: those of a deployment, and where its extensions are."""
    settings = folder / "php.ini"
    lines = [
        f"extension_dir = {programs.extensions}",
        "zend_extension = opcache",
        *(f"extension = {name}" for name in _EXTENSIONS),
        "opcache.enable = 1",
        "opcache.interned_strings_buffer = 16",
        "opcache.max_accelerated_files = 10000",
        "memory_limit = 256M",
        "date.timezone = UTC",
    ]
    settings.write_text("\n".join(lines) + "\n")
    return settings


_NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
{user}
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    fastcgi_buffers 64 16k;
    server {{
        listen {address};
        root {root};
        index index.php;
        location = /nginx-is-here {{ return 200 "{folder}"; }}
        location / {{ try_files $uri $uri/ /index.php?$args; }}
        location ~ \\.php$ {{
            fastcgi_pass unix:{socket};
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param DOCUMENT_URI $document_uri;
            fastcgi_param DOCUMENT_ROOT $document_root;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_param SERVER_NAME $host;
            fastcgi_param SERVER_PORT 80;
            fastcgi_param REMOTE_ADDR $remote_addr;
            fastcgi_param REDIRECT_STATUS 200;
        }}
    }}
}}
"""


class Nginx(AppServer):
    """nginx before a php-fpm."""

    name = "nginx"

    def __init__(self, folder: Path, programs: Programs, root: Path, php: PhpFpm) -> None:
        super().__init__(folder, programs.environment())
        self._programs = programs
        self._root = root
        self._php = php

    def program(self) -> list[str]:
        config = self.folder / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        told = {"folder": self.folder, "address": self.address, "root": self._root, "user": user}
        config.write_text(_NGINX.format(socket=self._php.socket, **told))
        options = ["-p", str(self.folder), "-e", "stderr", "-c", str(config)]
        return [str(self._programs.nginx), *options]

    def answers(self) -> bool:
        # By its folder: another's nginx may listen on the port.
        return Client(Site(self.port)).says("/nginx-is-here", str(self.folder).encode())


class WordPress(App):
    """A blog, each page of which has a connection of its own, as PHP has them. `counts_views`: of
    its posts it counts some views, by a plugin that always runs."""

    name = "WordPress"
    schema = "wordpress"
    noise = re.compile(rb"\b[0-9a-f]{10}\b")  # what allows a click, once
    pages = (
        Page("front", "/", b"Post 200 "),
        Page("post", "/post-150/", b"Post 150 "),
        Page("category", "/category/category-7/", b"Category 7"),
        Page("search", "/?s=nostrud+quis", b"nostrud quis"),
        Page("REST", "/wp-json/wp/v2/posts?per_page=10", b'"slug":"post-200"'),
        Page("admin list", "/wp-admin/edit.php", b"200 items", signed_in=True),
    )

    def __init__(self, folder: Path, *, counts_views: bool = False) -> None:
        super().__init__(folder)
        self._counts_views = counts_views

    def fetch(self) -> str:
        programs = Programs(fetched.once(self.folder, "debian", _unpacked))
        said = (programs.wordpress / "wp-includes" / "version.php").read_text()
        version = re.search(r"\$wp_version = '([\d.]+)'", said)
        php = programs.php.name.removeprefix("php")
        return f"WordPress {version[1] if version else '?'} on PHP {php}"

    def fill(self, folder: Path, database: Database) -> None:
        programs = self._programs()
        folder.mkdir(parents=True, exist_ok=True)
        script = str(SITES / "wordpress" / "fill.php")
        php = [str(programs.php), "-c", str(write_php_ini(folder, programs))]
        command = [*php, script, str(self._site(folder)), PASSWORD]
        environment = self._environment(programs, database)
        run(command, environment, "filling WordPress", says="200 posts")

    def serve(self, stack: ExitStack, folder: Path, database: Database) -> int:
        programs = self._programs()
        php = PhpFpm(folder / "php", programs, self._environment(programs, database))
        stack.enter_context(php)
        root = self._site(folder)
        return stack.enter_context(Nginx(folder / "nginx", programs, root, php)).port

    def sign_in(self, client: Client) -> Site:
        return client.sign_in(
            "/wp-login.php",
            {"log": "admin", "pwd": PASSWORD, "testcookie": "1", "redirect_to": "/wp-admin/"},
        )

    def _programs(self) -> Programs:
        return Programs(self.folder / "debian")

    def _site(self, folder: Path) -> Path:
        """A copy of WordPress with our settings: it may write there."""
        root = folder / "wordpress"
        if not root.exists():
            # Parts of it are links to other packages' files, or to the machine's settings.
            shutil.copytree(self._programs().wordpress, root, ignore_dangling_symlinks=True)
            shutil.copy(SITES / "wordpress" / "wp-config.php", root)
            if self._counts_views:
                plugins = root / "wp-content" / "mu-plugins"
                plugins.mkdir()
                shutil.copy(SITES / "wordpress" / "view-counter.php", plugins)
        return root

    def _environment(self, programs: Programs, database: Database) -> dict[str, str]:
        return {
            **programs.environment(),
            **database.environment(),
            "PAGES_DB_HOST": f"{HOST}:{database.port}",
        }
