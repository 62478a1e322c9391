"""Any bytes as packets and memcached's replies: `python -m tests.fuzz.packets --minutes 5`."""

from tests.fuzz.harness import main

if __name__ == "__main__":
    main("packets")
