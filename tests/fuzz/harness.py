"""Feeds parsers with bytes until one fails other than it promises.

With atheris, if that is installed, which knows what bytes lead to code not seen before; else with
mutations of known bytes, from a seed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from random import Random

from tests.fuzz.parsers import PARSERS, SEEDS

_TELLING = b"\0\1\xfb\xfc\xfd\xfe\xff'\"`\\/*!-#@$();,.? \r\n0a"


def mutations(random: Random, seeds: tuple[bytes, ...]) -> Iterator[bytes]:
    """Seeds with bytes changed, put in, taken out, doubled or joined."""
    while True:
        data = bytearray(random.choice(seeds))
        for _ in range(random.randint(0, 6)):
            at = random.randrange(len(data) + 1)
            end = min(len(data), at + random.randint(0, 12))
            match random.randint(0, 4):
                case 0:
                    data[at:end] = b""
                case 1:
                    data[at:at] = data[at:end]
                case 2:
                    data[at:at] = bytes((random.choice(_TELLING),)) * random.randint(1, 3)
                case 3:
                    data[at:end] = random.randbytes(end - at)
                case _:
                    data[at:at] = random.choice(seeds)
        yield bytes(data)


def main(group: str) -> None:
    """Runs one group of parsers from the command line."""
    parser = argparse.ArgumentParser(description=f"Feeds any bytes to what reads {group}.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--random", action="store_true", help="mutations also where atheris is")
    options = parser.parse_args()
    targets = tuple(PARSERS[group].values())

    def run(data: bytes) -> None:
        for target in targets:
            target(data)

    if not options.random and importlib.util.find_spec("atheris") is not None:
        _guided(run, options.minutes, options.seed)
    else:
        _random(run, group, options.minutes, options.seed)


def _random(run: Callable[[bytes], None], group: str, minutes: float, seed: int) -> None:
    end = time.monotonic() + minutes * 60
    count = 0
    for data in mutations(Random(seed), SEEDS[group]):
        try:
            run(data)
        except Exception:
            print(f"seed {seed}: {data!r}", file=sys.stderr)
            raise
        count += 1
        if time.monotonic() > end:
            break
    print(f"{group}: {count} mutations, seed {seed}")


def _guided(run: Callable[[bytes], None], minutes: float, seed: int) -> None:
    atheris = importlib.import_module("atheris")
    atheris.instrument_all()
    flags = [f"-max_total_time={max(1, round(minutes * 60))}", f"-seed={seed}", "-max_len=600"]
    atheris.Setup([sys.argv[0], *flags], run)
    atheris.Fuzz()
