"""Searches on and on, with new seeds: `python -m tests.coherence.model_soak --minutes 30`.

`--profile nodes --seed 17` runs one example again. Ends with 1, and the shortest history it could
make of it, where a promise was broken.
"""

import argparse
import itertools
import logging
import secrets
import sys
import time

from tests.coherence.model_cases import PROFILES
from tests.coherence.model_search import search, shortest


def main() -> int:
    """The exit code."""
    options = _options()
    logging.disable(logging.CRITICAL)  # outages are what this is about
    profiles = [options.profile] if options.profile else list(PROFILES)
    if options.seed is not None:
        return max(
            _examples(profile, range(options.seed, options.seed + 1)) for profile in profiles
        )
    end = time.monotonic() + options.minutes * 60
    for number in itertools.count():
        first = secrets.randbelow(10**9)
        profile = profiles[number % len(profiles)]
        if _examples(profile, range(first, first + options.batch)):
            return 1
        if time.monotonic() > end:
            return 0
    raise AssertionError("never")


def _examples(profile: str, seeds: range) -> int:
    print(f"profile {profile}, seeds {seeds.start} to {seeds.stop - 1}", flush=True)
    found = search(PROFILES[profile], seeds)
    if found is None:
        return 0
    print(f"seed {found.seed} of profile {profile} breaks a promise; as short as it gets:")
    print(shortest(found), flush=True)
    return 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Searches for a history that is not linearizable.")
    parser.add_argument("--minutes", type=float, default=10, help="when to stop")
    parser.add_argument("--profile", choices=PROFILES, help="draw from this one only")
    parser.add_argument("--seed", type=int, help="run this example only")
    parser.add_argument("--batch", type=int, default=200, help="seeds between two profiles")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
