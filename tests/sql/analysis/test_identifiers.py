"""The names a body mentions."""

import pytest

from sqlcache.sql.analysis import identifiers_in
from tests.sql.analysis.reading import PLAIN


def test_all_names_of_a_body_are_found() -> None:
    body = b"BEGIN INSERT INTO log (a) VALUES (NEW.a); UPDATE `x y`.t SET b = ABS(c); END"
    use = identifiers_in(body, PLAIN)
    assert {("log",), ("NEW", "a"), ("x y", "t"), ("b",)} <= use.paths
    assert use.functions == {("ABS",)}
    assert not use.opaque


@pytest.mark.parametrize(
    "body",
    ["CALL p()", "EXECUTE s", "SET x = f(1)", "SET x = db.abs(1)", "/*!50000 x */", "'unclosed"],
)
def test_a_body_that_runs_what_it_does_not_show_is_opaque(body: str) -> None:
    assert identifiers_in(body.encode(), PLAIN).opaque
