"""What is published: a source distribution and a wheel, built and installed as a stranger would."""

import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from packaging.requirements import Requirement

from sqlcache import __version__
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.kernels import compiled
from tests.servers import PATIENT

ROOT = Path(__file__).parents[1]
DIST_INFO = f"sqlcache-{__version__}.dist-info"
MAN_PAGE = f"sqlcache-{__version__}.data/data/share/man/man1/sqlcache.1"

IMPORT_ALL = """
import importlib, pkgutil, sqlcache
for module in pkgutil.walk_packages(sqlcache.__path__, "sqlcache."):
    if module.name not in ("sqlcache.api.sqlalchemy", "sqlcache.commands.top_page"):  # want extras
        importlib.import_module(module.name)
print(sqlcache.__file__)
"""

WITH_A_TYPING_ERROR = """
import sqlcache
cache: int = sqlcache.connect("mysql://ann@127.0.0.1/shop", memcached="memory")
"""


class Built(NamedTuple):
    """What `python -m build` makes: the source distribution, a wheel from that, one of the tree."""

    sdist: Path
    wheel: Path
    wheel_of_tree: Path


@pytest.fixture(scope="module", autouse=True)
def _as_a_stranger_would() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SQLCACHE_IMPL", raising=False)
        patch.setenv("CFLAGS", "-O0")  # most of these tests' time went into making builds fast
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", str(ROOT), "--outdir"]
    output_of(*build, folder)
    output_of(*build, folder / "tree", "--wheel")
    paths = [*folder.glob("*.tar.gz"), *folder.glob("*.whl"), *folder.glob("tree/*")]
    return Built(*paths)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(built.wheel, tmp_path_factory.mktemp("venv"))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, for what is started: one that tells nothing of the tree."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def output_of(*command: str | Path, status: int = 0) -> str:
    """What a command prints. Fails the test with that where it ends with another status."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def install(wheel: Path, folder: Path) -> Path:
    """The programs of a virtual environment with the wheel, what it requires, and nothing else."""
    venv.create(folder, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for distribution in required_by(wheel):
        link(distribution, site_packages)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    output_of(*pip, "install", "--no-index", wheel)
    return python.parent


def required_by(wheel: Path) -> list[metadata.Distribution]:
    """What the wheel needs, and what that needs in turn, as it is installed here."""
    with zipfile.ZipFile(wheel) as archive:
        asked = message_from_bytes(archive.read(f"{DIST_INFO}/METADATA")).get_all("Requires-Dist")
    assert asked
    found: dict[str, metadata.Distribution] = {}
    while asked:
        needed = Requirement(asked.pop())
        is_extra = needed.marker is not None and not needed.marker.evaluate({"extra": ""})
        if not is_extra and needed.name not in found:
            found[needed.name] = metadata.distribution(needed.name)
            asked += found[needed.name].requires or []
    return list(found.values())


def link(distribution: metadata.Distribution, site_packages: Path) -> None:
    for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        if not (site_packages / name).exists():
            (site_packages / name).symlink_to(str(distribution.locate_file(name)))


def files_of(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_twine_would_upload_them(built: Built) -> None:
    output_of(sys.executable, "-m", "twine", "check", "--strict", built.sdist, built.wheel)


def test_the_source_distribution_is_the_repository(built: Built) -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a checkout, or no git")
    list_files = ["git", "-C", str(ROOT), "ls-files"]
    tracked = {name for name in output_of(*list_files).splitlines() if (ROOT / name).exists()}
    new = set(output_of(*list_files, "--others", "--exclude-standard").splitlines())
    published = files_of(built.sdist)
    assert tracked - published == set()
    assert published - tracked - new == {"PKG-INFO"}


def test_the_wheel_is_the_package_with_its_types_and_its_licence(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = archive.namelist()
        assert archive.read(MAN_PAGE) == (ROOT / "docs" / "sqlcache.1").read_bytes()
    about = {name for name in names if not name.startswith("sqlcache/")}
    assert about == {MAN_PAGE} | {
        f"{DIST_INFO}/{name}"
        for name in (
            *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"),
            "licenses/sqlcache/admin/static/uplot/LICENSE",
        )
    }
    files = [path for path in (ROOT / "sqlcache").rglob("*") if path.is_file()]
    package = {str(file.relative_to(ROOT)) for file in files if file.suffix != ".pyc"}
    page = (f"sqlcache/admin/static/{name}" for name in ("index.html", "uplot/uPlot.iife.min.js"))
    assert {"sqlcache/py.typed", *page} <= package
    assert set(names) - about == package


def test_the_image_copies_what_the_wheel_is_made_of(built: Built, tmp_path: Path) -> None:
    """All but the man page: there is no reader in it."""
    copied = re.findall(r"^COPY (?!-)(.*) (\S+)$", (ROOT / "docker/Dockerfile").read_text(), re.M)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for names, where in copied:
        for source in (ROOT / name for name in names.split()):
            if source.is_dir():
                shutil.copytree(source, tmp_path / where, ignore=ignored)
            else:
                shutil.copy(source, tmp_path)
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", str(tmp_path), "--outdir"]
    output_of(*build, tmp_path / "dist")
    (wheel,) = tmp_path.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(built.wheel) as whole:
        assert set(whole.namelist()) - set(archive.namelist()) == {MAN_PAGE}
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert {name for names, _ in copied for name in names.split()} == allowed


def test_the_wheel_of_the_tree_is_that_of_the_source_distribution(built: Built) -> None:
    assert built.wheel_of_tree.read_bytes() == built.wheel.read_bytes()


def test_the_wheel_holds_the_compiled_kernel(built: Built, installed: Path) -> None:
    compiled()
    assert not built.wheel.name.endswith("-any.whl")
    assert output_of(installed / "sqlcache", "--version") == f"sqlcache {__version__} (compiled)\n"


def test_the_wheel_is_for_linux_of_any_distribution(built: Built, tmp_path: Path) -> None:
    """PyPI takes no other that is compiled. As `make package` does it."""
    compiled()
    programs = Path(sys.executable).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs), prepend=":")
        output_of(programs / "auditwheel", "repair", "--wheel-dir", tmp_path, built.wheel)
    (wheel,) = tmp_path.glob("*.whl")
    assert all(tag.startswith("manylinux") for tag in wheel.stem.split("-")[-1].split("."))


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program can be found, whatever its name."""
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.usefixtures("elsewhere", "no_compiler")
def test_without_a_compiler_the_wheel_is_pure_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", str(ROOT), "--outdir"]
    assert "sqlcache is built in pure Python" in output_of(*build, tmp_path)
    programs = install(tmp_path / f"sqlcache-{__version__}-py3-none-any.whl", tmp_path / "venv")
    output_of(programs / "python", "-c", IMPORT_ALL)
    assert output_of(programs / "sqlcache", "--version") == f"sqlcache {__version__} (pure)\n"
    monkeypatch.setenv("SQLCACHE_IMPL", "compiled")
    assert "SQLCACHE_IMPL = compiled: expected an installation that has" in output_of(
        programs / "sqlcache", "--version", status=2
    )
    assert "NotCompiled: " in output_of(*build, tmp_path, status=1)


@pytest.mark.usefixtures("elsewhere")
def test_it_needs_nothing_but_what_it_requires(installed: Path) -> None:
    imported_from = output_of(installed / "python", "-c", IMPORT_ALL)
    assert Path(imported_from.strip()).is_relative_to(installed.parent)


def test_its_commands_run_from_any_folder(installed: Path, elsewhere: Path) -> None:
    sqlcache = installed / "sqlcache"
    assert "--rows" in output_of(sqlcache, "demo", "--help")
    needed = ["--upstream", "mysql://ann@127.0.0.1:3306", "--memcached", "memory"]
    assert output_of(sqlcache, "check-config", *needed).endswith("all settings are right\n")
    assert output_of(sqlcache, "completions", "bash")
    assert (installed.parent / "share/man/man1/sqlcache.1").exists()
    output_of(sqlcache, "init", "--dir", "new", *needed)
    unit = (elsewhere / "new/sqlcache.service").read_text()
    assert f"ExecStart={sqlcache} serve" in unit
    output_of(sqlcache, "check-config", "--config", "new/sqlcache.toml")


class InstalledSqlcache(PrivateSqlcache):
    """The wheel's `sqlcache serve`, in `workers` processes."""

    programs: Path

    def command(self) -> list[str]:
        _python, _m, _sqlcache, *arguments = super().command()
        return [str(self.programs / "sqlcache"), *arguments]


def test_it_serves_from_any_folder(
    installed: Path, elsewhere: Path, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    nodes = (memcached.address,)
    server = InstalledSqlcache(
        elsewhere / "server", mariadb.service_url, nodes, proxy__workers=2, **PATIENT
    )
    server.programs = installed
    login = {"user": mariadb.user, "password": mariadb.password}
    with server, server.connect(**login) as client, client.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)
        for name in ("", "static/main.js", "static/uplot/uPlot.iife.min.js"):
            with urlopen(f"http://127.0.0.1:{server.admin_port}/{name}") as page:
                file = name.removeprefix("static/") or "index.html"
                assert page.read() == (ROOT / "sqlcache/admin/static" / file).read_bytes()
    assert "Traceback" not in server.log_text()


def test_its_types_are_found(installed: Path, elsewhere: Path) -> None:
    (elsewhere / "app.py").write_text(WITH_A_TYPING_ERROR)
    mypy = [sys.executable, "-m", "mypy", "--strict"]
    python = installed / "python"
    said = output_of(*mypy, "--python-executable", python, "app.py", status=1)
    assert 'expression has type "Cache", variable has type "int"' in said
    assert "Found 1 error" in said


def test_the_changelog_tells_of_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(__version__)} ", changelog, re.MULTILINE)
