"""The file of a saved cache: whole, or refused."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import pytest

from sqlcache.cli import main
from sqlcache.commands import saved_files
from sqlcache.commands.saved_files import COPY, HEADER, ITEM, Record, SavedFile, Writer
from sqlcache.errors import ConfigError

RECORDS = [
    Record(COPY, b"shop", b"V12345678", 1),
    Record(ITEM, b"p:e:abc", bytes(range(256)) * 20, 65_535, 60),
    Record(ITEM, b"p:t:abc", b"", 0, 0),
]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved"
    with Writer(path) as file:
        file.say(HEADER, {"prefix": "p"})
        for record in RECORDS:
            file.write(record)
        file.end({"answers": 1})
    return path


def test_what_is_read_is_what_was_written(saved: Path) -> None:
    file = SavedFile(saved)
    assert file.header == {"prefix": "p"}
    assert list(file.records()) == RECORDS
    assert list(file.records()) == RECORDS


def test_it_is_for_its_owner_alone(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert [each.name for each in saved.parent.iterdir()] == ["saved"]


def test_one_that_was_not_ended_leaves_what_was_there(saved: Path) -> None:
    before = saved.read_bytes()
    with Writer(saved) as file:
        file.say(HEADER, {"prefix": "other"})
    assert saved.read_bytes() == before
    assert [each.name for each in saved.parent.iterdir()] == ["saved"]


def test_of_two_that_are_written_at_once_each_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    with Writer(path) as one, Writer(path) as other:
        for name, file in (("one", one), ("other", other)):
            file.say(HEADER, {"prefix": name})
        one.end({})
        assert SavedFile(path).header == {"prefix": "one"}
        other.end({})
    assert SavedFile(path).header == {"prefix": "other"}
    assert [each.name for each in tmp_path.iterdir()] == ["saved"]


def test_what_one_that_was_killed_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """And nothing of one that is at work, or of another name."""
    path = tmp_path / "saved"
    others = {"saved.part", "saved.abcdefgh.parts", "other.abcdefgh.part", "saved.abcdefg.part"}
    for name in others:
        tmp_path.joinpath(name).touch()
    tmp_path.joinpath("saved.linked__.part").symlink_to(tmp_path / "other.abcdefgh.part")
    for _ in range(2):
        killed = (
            "import os, sys; from pathlib import Path; from sqlcache.commands import saved_files"
        )
        killed += "; saved_files.Writer(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
        assert subprocess.run([sys.executable, "-c", killed, path], check=False).returncode == -9
        assert len(list(tmp_path.glob("saved.????????.part"))) == 2
    with Writer(path) as one, Writer(path) as other:
        assert len(list(tmp_path.glob("saved.????????.part"))) == 3
        one.end({})
        other.end({})
    left = {each.name for each in tmp_path.iterdir()} - {"saved.linked__.part"}
    assert left == {"saved", *others}


def test_one_that_is_taken_for_left_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(*args: Any) -> tuple[int, str]:
        file, name = mkstemp(*args)
        if not made:
            os.unlink(name)
        made.append(name)
        return file, name

    monkeypatch.setattr(saved_files, "mkstemp", make)
    with Writer(tmp_path / "saved") as file:
        file.say(HEADER, {"prefix": "p"})
        file.end({})
    assert len(made) == 2
    assert SavedFile(tmp_path / "saved").header == {"prefix": "p"}


@pytest.mark.parametrize("value_bytes", [10, 100_000], ids=["at the end", "amid the records"])
def test_one_that_the_disk_has_no_room_for_says_so_and_leaves_nothing(
    tmp_path: Path, value_bytes: int
) -> None:
    def write() -> None:
        with Writer(tmp_path / "saved") as file, open("/dev/full", "wb") as full:
            os.dup2(full.fileno(), file._file.fileno())
            file.write(Record(ITEM, b"p:e:abc", bytes(value_bytes)))
            file.end({"answers": 1})

    with pytest.raises(ConfigError, match="saved: No space left on device"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_stays_and_what_it_leads_to_is_replaced(saved: Path) -> None:
    for name, leads_to in (("link", saved), ("dangling", saved.with_name("new"))):
        link = saved.with_name(name)
        link.symlink_to(leads_to)
        with Writer(link) as file:
            file.say(HEADER, {"prefix": name})
            file.end({})
        assert link.readlink() == leads_to
        assert SavedFile(leads_to).header == {"prefix": name}
    names = {"saved", "link", "dangling", "new"}
    assert {each.name for each in saved.parent.iterdir()} == names


def entries_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What is there, whenever it was looked at."""
    stats = {each.name: each.lstat() for each in folder.iterdir()}
    return {name: (s.st_ino, s.st_mode, s.st_mtime_ns) for name, s in stats.items()}


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "loop", "link to a fifo"])
def test_what_is_no_file_stays_and_nobody_is_asked(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "there"
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        match kind:
            case "fifo":
                os.mkfifo(path)
            case "socket":
                bound.bind(os.fspath(path))
            case "folder":
                path.mkdir()
            case "loop":
                path.symlink_to(path)
            case _:
                os.mkfifo(tmp_path / "fifo")
                path.symlink_to("fifo")
        before = entries_of(tmp_path)
        nobody = ["--upstream", "mysql://a@127.0.0.1:1", "--memcached", "127.0.0.1:1"]
        assert main(["save", str(path), *nobody]) == 2
    said = f"sqlcache: {path}: is no regular file, and stays what it is\n"
    assert capsys.readouterr().err == said
    assert entries_of(tmp_path) == before


def test_no_byte_may_be_missing_or_another_one(saved: Path) -> None:
    whole = saved.read_bytes()
    for at in range(0, len(whole), 7):
        saved.write_bytes(whole[:at])
        with pytest.raises(ConfigError):
            SavedFile(saved)
        saved.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ConfigError):
            SavedFile(saved)
    saved.write_bytes(whole + b"x")
    with pytest.raises(ConfigError):
        SavedFile(saved)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing: No such file"):
        SavedFile(tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"No such file"):
        Writer(tmp_path / "nowhere" / "saved")
