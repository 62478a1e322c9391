import json
from pathlib import Path

import pytest

from tests.bench.results import Result, Row, read
from tests.bench.tables import figure

D = Row("statements", "hit", "direct", 32, [{"us": 20.0}, {"us": 40.0}, {"us": 30.0}])


def test_a_row_tells_the_median_of_each_figure_by_itself() -> None:
    row = Row("p", "n", "w", 1, [{"a": 1.0, "b": 9.0}, {"a": 5.0, "b": 7.0}, {"a": 2.0, "b": 8.0}])
    assert row.median == {"a": 2.0, "b": 8.0}


def test_a_ratio_compares_what_was_measured_in_the_same_pass() -> None:
    twice = Row("p", "n", "w", 1, [{"us": 40.0}, {"us": 80.0}, {"us": 600.0}])
    assert twice.ratio(figure("us"), D, figure("us")) == 2


def test_rows_of_different_runs_are_not_compared() -> None:
    with pytest.raises(ValueError, match="longer"):
        Row("p", "n", "w", 1, [{"us": 1.0}]).ratio(figure("us"), D, figure("us"))


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = Result({"date": "2026-01-31"})
    result.add([D, Row("p", "never measured", "w", 1)])
    result.write(tmp_path / "bench.json")
    assert read(tmp_path / "bench.json") == Result({"date": "2026-01-31"}, [D])
    told = json.loads((tmp_path / "bench.json").read_text())
    assert [row["median"] for row in told["rows"]] == [{"us": 30}]


def test_figures_are_written_with_few_digits(tmp_path: Path) -> None:
    Result({}, [Row("p", "n", "w", 1, [{"rate": 123_456.7, "us": 0.123_456}])]).write(
        tmp_path / "bench.json"
    )
    assert read(tmp_path / "bench.json").rows[0].repeats == [{"rate": 123_500, "us": 0.1235}]


def test_a_row_is_found_by_what_it_is() -> None:
    result = Result({}, [D])
    assert result.find("statements", "hit", "direct", 32) is D
    assert result.find("statements", "hit", "direct", 1) is None
