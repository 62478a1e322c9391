"""A host without a processor to spare is no outage of memcached."""

from pathlib import Path

import pytest

from tests.coherence.busy_host import Load, bear

pytestmark = [
    pytest.mark.soak,
    pytest.mark.usefixtures("no_other_load"),
    pytest.mark.timeout(300, func_only=True),
]


@pytest.mark.parametrize(
    "load",
    [
        Load(8, clients=8, burners=4, one_core=True),
        Load(8, workers=2, clients=8, burners=12),
    ],
    ids=["one core for all", "two workers beside processes that burn all cores"],
)
def test_on_a_busy_host_nobody_loses_sight_of_memcached(load: Load, tmp_path: Path) -> None:
    """`python -m tests.coherence.busy_host` does so for as long as one likes."""
    seen = bear(load, tmp_path)
    assert seen.calm, seen
    assert seen.hits
