"""Which commands are answered at once."""

import pytest

from sqlcache.plan.plans import FOLLOWED
from sqlcache.plan.variables import Globals, at_login
from sqlcache.sql.shaping import GLOBALS_THAT_SHAPE_ANSWERS


@pytest.mark.parametrize("name", [name.decode() for name in FOLLOWED])
def test_what_is_told_without_mysql_tells_contexts_apart(name: str) -> None:
    """What a session began with, and what it has set."""
    globals_ = tuple((each, "as it was") for each in GLOBALS_THAT_SHAPE_ANSWERS)
    one = at_login(Globals(globals_), 45)
    other = one.set(((name, "another"),)).variables
    assert name in GLOBALS_THAT_SHAPE_ANSWERS
    assert one.fingerprint != other.fingerprint
