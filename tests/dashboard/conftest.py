"""One Chromium for a module's tests; what its pages complain of fails the test."""

from collections.abc import Iterator

import pytest

from tests.conftest import ProxyFactory
from tests.dashboard.browser import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser, proxy: ProxyFactory) -> Iterator[Browser]:
    """Its pages are closed before the proxies they show are stopped. A test that wants complaints
    takes them out."""
    chromium.complaints.clear()
    yield chromium
    chromium.close_pages()
    assert chromium.complaints == []
