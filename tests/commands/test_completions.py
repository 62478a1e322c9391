"""`sqlcache completions`: shells really complete by what it prints."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sqlcache.cli import main

Complete = Callable[[str, str], set[str]]
"""What a shell offers after a line of words, by its name."""

# As bash does when Tab is pressed: the words are its own.
IN_BASH = """
source "$1"; shift
function=$(complete -p sqlcache | sed "s/.*-F \\([^ ]*\\) .*/\\1/")
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
"$function" sqlcache "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf "%s\\n" "${COMPREPLY[@]}"
"""

# zsh completes at a terminal alone: this waits until the text that is expected is there.
IN_ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT=; autoload -U compinit; fpath=($1 \\$fpath); compinit -D -u; print re''ady"
zpty -r -m shell said "*ready*"
zpty -n -w shell "$2"$'\\t\\t'
zpty -r -m shell said "*$3*"
"""


@pytest.fixture
def completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    def asked(shell: str, line: str) -> set[str]:
        if shutil.which(shell) is None:
            pytest.skip(f"no {shell}")
        assert main(["completions", shell]) == 0
        script = tmp_path / f"sqlcache.{shell}"
        script.write_text(capsys.readouterr().out)
        if shell == "fish":
            command = ["fish", "--no-config", "-c", f"source {script}; complete -C {line!r}"]
        else:
            command = ["bash", "--norc", "-c", IN_BASH, "bash", str(script), *line.split(" ")]
        said = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30, cwd=tmp_path
        )
        assert said.stderr == ""
        return {offered.split("\t")[0].strip() for offered in said.stdout.splitlines()}

    return asked


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_commands_and_their_own_flags_are_completed(shell: str, completed: Complete) -> None:
    assert completed(shell, "sqlcache he") == {"healthcheck"}
    assert completed(shell, "sqlcache flush --t") == {"--table"}
    assert completed(shell, "sqlcache completions f") == {"fish"}
    assert "--take-over" in completed(shell, "sqlcache serve --")
    assert "--take-over" not in completed(shell, "sqlcache flush --")


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_files_are_completed_where_a_file_is_wanted(
    shell: str, completed: Complete, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text("")
    assert completed(shell, "sqlcache serve --config mi") == {"mine.toml"}


@pytest.mark.parametrize(
    ("line", "then"),
    [("sqlcache he", "sqlcache healthcheck"), ("sqlcache flush --", "those that hang on a table")],
)
def test_zsh_completes_at_its_prompt(
    line: str, then: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh")
    assert main(["completions", "zsh"]) == 0
    (tmp_path / "_sqlcache").write_text(capsys.readouterr().out)
    subprocess.run(["zsh", "-f", "-c", IN_ZSH, "zsh", tmp_path, line, then], check=True, timeout=30)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completions", "cmd"])
    assert ended.value.code == 2
    assert "'cmd'" in capsys.readouterr().err
