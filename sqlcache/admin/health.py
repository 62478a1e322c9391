"""Whether clients are served: what orchestrators ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

STARTING = "is starting"
DRAINING = "is draining"


@dataclass(frozen=True, slots=True)
class Readiness:
    """By part: the problems that keep clients from being served, and what is merely wrong."""

    problems: Mapping[str, str] = field(default_factory=dict)
    warnings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_all(cls, named: Iterable[tuple[str, Readiness]]) -> Readiness:
        """That of several processes together, each with its name before the parts. As long as one
        can serve clients, the problems of the others are merely wrong."""
        problems: dict[str, str] = {}
        warnings: dict[str, str] = {}
        one_serves = False
        for name, each in named:
            one_serves |= not each.problems
            problems |= {f"{name} {part}": why for part, why in each.problems.items()}
            warnings |= {f"{name} {part}": why for part, why in each.warnings.items()}
        return cls({}, problems | warnings) if one_serves else cls(problems, warnings)

    def said(self) -> dict[str, object]:
        """It as JSON has it."""
        return {
            "ready": not self.problems,
            "problems": dict(self.problems),
            "warnings": dict(self.warnings),
        }
