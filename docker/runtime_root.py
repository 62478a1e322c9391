"""Makes the image's root: a virtual environment's interpreter and what it loads, nothing else.

    VENV/bin/python runtime_root.py ROOT

Of the machine it runs on, a Debian one, it copies the interpreter, the standard library without
what only developers use, the shared libraries these and the environment's own are linked with,
and the certificates the system trusts. Of every Debian package it took a file from it leaves the
copyright notice, and the package's record in `/var/lib/dpkg/status.d`, where scanners look.

All is compiled, there and in the environment: a container's root may be read-only.
"""

import compileall
import py_compile
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

UNUSED = {
    *("curses", "dbm", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "sqlite3"),
    *("test", "tkinter", "turtledemo", "venv"),
    *("__pycache__", "dist-packages", "site-packages", "sitecustomize.py"),
}
UNUSED_EXTENSIONS = (
    *("_crypt", "_curses", "_dbm", "_gdbm", "_sqlite3", "_test", "_tkinter"),
    *("nis", "readline", "xx"),
)

DPKG = Path("/var/lib/dpkg")
DOCS = Path("/usr/share/doc")


class Root:
    """The folder that becomes the image's `/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: set[Path] = set()
        for name in ("bin", "lib", "lib64", "sbin"):  # where a Debian has moved them into /usr
            if Path("/", name).is_symlink():
                self.take(Path("/", name))

    def inside(self, path: Path) -> Path:
        return self.folder / path.relative_to("/")

    def take(self, path: Path) -> None:
        """Copies a file; or a link, and the file it leads to. A folder comes empty."""
        place = _real(path)
        copy = self.inside(place)
        if place in self.taken or not place.exists():
            return
        self.taken.add(place)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            copy.symlink_to(place.readlink())
            self.take(place.parent / place.readlink())
        elif place.is_dir():
            copy.mkdir(exist_ok=True)
        else:
            shutil.copy2(place, copy)


def _real(path: Path) -> Path:
    """Where a file, or a link itself, really is: in `/usr/lib` what was asked for in `/lib`."""
    return path.parent.resolve() / path.name


def interpreter() -> Iterator[Path]:
    """The program, by every name that the environment's links to it go through."""
    link = Path(sys.executable)
    while link.is_symlink():
        link = link.parent / link.readlink()
        yield link


def library(stdlib: Path) -> Iterator[Path]:
    """The standard library's files."""
    for path in stdlib.iterdir():
        if path.name in UNUSED or path.name.startswith("config-"):
            continue
        for file in path.rglob("*") if path.is_dir() else [path]:
            unused = file.suffix == ".so" and file.name.startswith(UNUSED_EXTENSIONS)
            if file.suffix in (".py", ".so", ".txt") and not unused:  # Python's licence is a .txt
                yield file


def linked(programs: list[Path]) -> Iterator[Path]:
    """The shared libraries that any of these is linked with."""
    shown = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True)
    for line in shown.stdout.splitlines():
        name, _, found = line.strip().rpartition("=> ")
        if found.startswith("not found"):
            raise SystemExit(f"{name}: a library that an extension module needs is not there")
        if found.startswith("/") and "(" in found:
            yield Path(found.split()[0])
    yield from Path("/").glob("usr/lib/*-linux-gnu*/libgcc_s.so.1")  # which ending a thread loads


def trusted() -> Iterator[Path]:
    """The certificates OpenSSL looks for by default."""
    paths = ssl.get_default_verify_paths()
    for place in (Path(paths.openssl_cafile), Path(paths.openssl_capath)):
        yield place
        if place.is_dir():
            yield from place.resolve().iterdir()


def owners(files: set[Path]) -> set[str]:
    """The Debian packages these files are from."""
    return {
        listing.stem
        for listing in DPKG.glob("info/*.list")
        for line in listing.read_text().splitlines()
        if line != "/." and not Path(line).is_dir() and _real(Path(line)) in files
    }


def compile_all(folder: Path, stripped: Path | None = None) -> None:
    """Compiles for good: what is compiled is never held against its source's time again."""
    compiled = compileall.compile_dir(
        folder,
        quiet=1,
        force=True,
        stripdir=stripped,
        prependdir="/" if stripped else None,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not compiled:
        raise SystemExit(f"{folder}: not all of it can be compiled")


def main(folder: Path) -> None:
    root = Root(folder)
    stdlib = Path(sysconfig.get_path("stdlib"))
    files = [*interpreter(), *library(stdlib)]
    environment = Path(sys.prefix)
    programs = [f for f in [*files, *environment.rglob("*.so")] if f.suffix == ".so"]
    programs.append(Path(sys.executable).resolve())
    machine = [Path("/etc", name) for name in ("ld.so.cache", "nsswitch.conf", "os-release")]
    for path in [*files, *linked(programs), *trusted(), *machine]:
        root.take(path)
    (root.folder / "var/lib/dpkg/status.d").mkdir(parents=True)
    for package in owners(root.taken):
        name = package.partition(":")[0]
        root.take(DOCS / name / "copyright")
        record = subprocess.run(
            ["dpkg-query", "--status", package], capture_output=True, check=True
        )
        (root.folder / "var/lib/dpkg/status.d" / name).write_bytes(record.stdout)
    compile_all(root.inside(stdlib), stripped=root.folder)
    compile_all(environment)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
