"""What a run writes into the documents, and that they say what docs/performance.json does."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench import report
from tests.bench.chart import Bars, bars, svg
from tests.bench.results import Result, read
from tests.bench.tables import TABLES
from tests.bench.test_tables import whole_run

PAGE = "before\n<!-- bench: costs -->\nold\n<!-- end of bench -->\nafter <!-- other -->\n"


def test_a_block_takes_its_place_and_leaves_the_rest() -> None:
    made = report.filled(PAGE, {"costs": "| new |\n"})
    assert made == PAGE.replace("old", "| new |")
    assert report.filled(made, {"costs": "| new |\n"}) == made


def test_a_place_for_what_there_is_not_is_an_error() -> None:
    with pytest.raises(KeyError, match="costs"):
        report.filled(PAGE, {})


def test_every_table_has_a_place_in_the_documents() -> None:
    text = "".join((report.ROOT / name).read_text() for name in report.PAGES)
    for name in report.blocks(whole_run()):
        assert f"<!-- bench: {name} -->" in text, name


def test_it_is_told_when_and_on_what_it_was_measured() -> None:
    told = report.about(whole_run())
    for word in ("2026-01-31", "a machine", "MariaDB 11", "3 passes", "d was 40 µs"):
        assert word in told


def test_a_part_of_another_run_is_told_with_its_machine() -> None:
    kept, newer = whole_run(), whole_run()
    elsewhere = Result({**newer.about, "date": "2026-02-01", "machine": "another"}, newer.rows)
    told = report.about(report.replaced(kept, "pages", elsewhere))
    assert "2026-01-31, a machine" in told
    assert "Of another run (2026-02-01, another): pages." in told


def test_a_run_on_a_busy_machine_is_called_rough() -> None:
    busy = whole_run()
    assert "rough" not in report.about(busy)
    assert "rough" in report.about(Result({**busy.about, "load": 5.9}, busy.rows))


def test_the_documents_say_what_the_run_beside_them_measured(tmp_path: Path) -> None:
    """`python -m tests.bench.report docs/performance.json` writes them anew."""
    result = read(report.ROOT / report.RUN)
    assert [name for name, table in TABLES.items() if not table(result).rows] == []
    for name in report.PAGES:
        page = (report.ROOT / name).read_text()
        assert report.filled(page, report.blocks(result)) == page, name
    assert (report.ROOT / report.CHART).read_text() == report.drawn(result)
    result.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (report.ROOT / report.RUN).read_text()


def test_the_chart_has_a_bar_for_each_server_of_each_kind() -> None:
    found = bars(whole_run())
    drawn = ElementTree.fromstring(svg(found, "a < title"))
    names = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "a < title" in names
    assert {each.name for each in found} <= set(names)
    bars_drawn = list(drawn.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(bars_drawn) == 1 + 4 + 4 * len(found), "a background, a legend, the bars"


def test_a_bar_that_is_too_long_says_how_long_it_is() -> None:
    drawn = svg([Bars("connect", (50.0, 6.0, 7.0), 5.0)], "title")
    assert ">63 d</text>" in drawn
    assert drawn.count(" d</text>") == 1 + 9, "and the scale"
