import pytest

from tests.bench.sysbench import SysbenchFailed, parsed

SAID = """SQL statistics:
    queries performed:
        read:                            3178
        write:                           908
        other:                           454
        total:                           4540
    transactions:                        227    (225.63 per sec.)
    queries:                             4540   (4512.63 per sec.)
    ignored errors:                      3      (0.01 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          1.0051s
    total number of events:              227

Latency (ms):
         min:                                    2.96
         avg:                                    4.42
         max:                                   12.11
         95th percentile:                        6.55
         sum:                                 1003.00
"""


def test_queries_latency_and_errors_are_taken_from_what_sysbench_says() -> None:
    assert parsed(SAID) == {"rate": 4512.63, "p95_ms": 6.55, "errors": 3}


def test_what_says_no_figures_is_an_error() -> None:
    with pytest.raises(SysbenchFailed, match="unable to connect"):
        parsed("FATAL: unable to connect to MySQL server")
