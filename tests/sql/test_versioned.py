"""Versioned comments: what stands in them, and who runs it."""

import pytest

from sqlcache.sql.versioned import Inside, Opens, inside

MYSQL = Opens(is_mariadb=False, version=90704)
OLD_MYSQL = Opens(is_mariadb=False, version=80036, six_digits=False)
MARIADB = Opens(is_mariadb=True, version=101119)
SERVERS = [None, MYSQL, OLD_MYSQL, MARIADB]

R, S, N = "runs", "skips", "not known"


@pytest.mark.parametrize(
    ("comment", "by"),
    [
        # What each server does: not known which, MySQL 9.7, MySQL 8.0, MariaDB 10.11.
        ("/*! x */", (R, R, R, R)),
        ("/*!50600 x */", (R, R, R, R)),
        ("/*!50601 x */", (N, R, R, R)),
        ("/*!50699 x */", (N, R, R, R)),
        ("/*!50700 x */", (N, R, R, S)),
        ("/*!80036 x */", (N, R, R, S)),
        ("/*!80037 x */", (N, R, S, S)),
        ("/*!90704 x */", (N, R, S, S)),
        ("/*!90705 x */", (N, S, S, S)),
        ("/*!99999 x */", (N, S, S, S)),
        # A node of a cluster runs this.
        ("/*!99997 x */", (N, N, N, N)),
        ("/*!99997 */", (S, S, S, S)),
        ("/*!50000*/", (S, S, S, S)),
        ("/*M!99997 x */", (N, S, S, R)),
        ("/*M! x */", (N, S, S, R)),
        ("/*M!50700 x */", (N, S, S, R)),
        ("/*M!101119 x */", (N, S, S, R)),
        ("/*M!101120 x */", (N, S, S, S)),
        ("/*M!999999 x */", (N, S, S, S)),
        # Six digits.
        ("/*!100000 x */", (N, S, N, R)),
        ("/*!101120 x */", (N, S, N, S)),
        ("/*!080036 x */", (N, R, N, S)),
        ("/*!050000 x */", (N, R, N, R)),
        ("/*!050000\tx */", (N, R, N, R)),
        ("/*!100000x */", (N, N, N, R)),
        ("/*!050000x */", (N, N, N, R)),
        # What are no versions is code as well, where the comment is any.
        *((f"/*!{'1' * digits} x */", (N, N, N, N)) for digits in (1, 2, 3, 4, 7, 8)),
        ("/*M!1 x */", (N, S, S, N)),
        # Comments inside.
        ("/*!50000 /* x */", (N, N, N, N)),
        ("/*!99999 /* x */", (N, N, N, N)),
        ("/*!50000 -- x */", (N, N, N, N)),
        ("/*!50000 '#' x */", (N, N, N, N)),
        ("/*!99999 -- x */", (N, S, S, S)),
        ("/*!99999 # ' x */", (N, S, S, S)),
    ],
)
def test_who_runs_what_stands_in_one(comment: str, by: tuple[str, ...]) -> None:
    def does(server: Opens | None) -> str:
        read = inside(comment.encode(), server)
        return N if read is None else R if read.text else S

    assert tuple(map(does, SERVERS)) == by


@pytest.mark.parametrize(
    ("comment", "read"),
    [
        ("/*! a */", (b" a ", 3)),
        ("/*!50000a*/", (b"a", 8)),
        ("/*M!100100 a\n*/", (b" a\n", 10)),
        ("/*!*/", (b"", 3)),
        ("/*!40000 '*/", (b" '", 8)),
    ],
)
def test_what_is_run_is_all_up_to_its_end(comment: str, read: tuple[bytes, int]) -> None:
    assert inside(comment.encode(), MARIADB) == Inside(*read)
