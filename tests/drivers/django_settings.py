"""The settings with which Django's own tests run. They are laid beside these tests.

Each test's outcome goes to a file, a line each: what Django prints names only tests that fail.
"""

import os
import unittest
from pathlib import Path
from typing import Any
from unittest.case import TestCase

_OUTCOMES = Path(os.environ["DRIVERS_OUTCOMES"])


def _database(name: str) -> dict[str, Any]:
    """Django creates `test_` and that name, and drops it when it is done."""
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": name,
        "HOST": os.environ["DRIVERS_HOST"],
        "PORT": os.environ["DRIVERS_PORT"],
        "USER": os.environ["DRIVERS_ACCOUNT"],
        "PASSWORD": os.environ["DRIVERS_PASSWORD"],
        "TEST": {"CHARSET": "utf8mb4"},
    }


DATABASES = {"default": _database("django"), "other": _database("django_other")}
SECRET_KEY = "a secret of tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the fastest
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False


class _Outcomes(unittest.TextTestResult):
    """Of a test's outcomes the last counts: subtests may be skipped before the test passes."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        unittest.TextTestRunner.resultclass = unittest.TextTestResult  # for tests that run tests

    def _write(self, test: TestCase, outcome: str) -> None:
        test = getattr(test, "test_case", test)  # whose names hold all that is to be compared
        with _OUTCOMES.open("a") as file:
            file.write(f"{outcome} {test.id()}\n")

    def addSuccess(self, test: TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        self._write(test, "pass")

    def addError(self, test: TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self._write(test, "fail")

    def addFailure(self, test: TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._write(test, "fail")

    def addSubTest(self, test: TestCase, subtest: TestCase, err: Any) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._write(test, "fail")

    def addSkip(self, test: TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._write(test, "skip")

    def addExpectedFailure(self, test: TestCase, err: Any) -> None:  # noqa: N802
        super().addExpectedFailure(test, err)
        self._write(test, "pass")

    def addUnexpectedSuccess(self, test: TestCase) -> None:  # noqa: N802
        super().addUnexpectedSuccess(test)
        self._write(test, "fail")


# Django's runner names no other.
unittest.TextTestRunner.resultclass = _Outcomes
