"""Figures of README and docs are those that are recorded, and pictures are drawn from them."""

import re

import pytest

from benchmarks.results import recorded
from benchmarks.results.pages import PARTS, pages, written
from benchmarks.results.recorded import ROOT

PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in pages()}
MADE = (
    "README.md",
    "docs/index.md",
    "docs/speed.md",
    "docs/results.md",
    "docs/faq.md",
    "docs/accuracy.md",
)
# A figure: a number with a unit, or a ratio.
FIGURE = re.compile(r"\d[\d.,]*\s?(?:%|s\b|ms\b|times\b|minutes?\b|hours?\b|MiB\b|x faster)")


@pytest.mark.parametrize("name", PAGES)
def test_recorded_parts_are_what_is_recorded(name):
    assert written(PAGES[name]) == PAGES[name], "run python -m benchmarks.results.pages"


def test_every_part_is_used():
    used = set(re.findall(r"<!-- recorded: ([\w ]+) -->", "".join(PAGES.values())))
    assert used == set(PARTS)


@pytest.mark.parametrize("name", MADE)
def test_there_are_no_other_figures(name):
    text = re.sub(r"<!-- recorded.*?<!-- end -->", "", PAGES[name], flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert FIGURE.findall(text) == []


def test_the_recorded_run_of_the_quickstart_is_read():
    text = (recorded.OUTPUTS / "quickstart.txt").read_text(encoding="utf-8")
    run = recorded.quickstart("quickstart")
    assert run.training == 1437 and run.private in text and run.plain in text
    assert float(run.epsilon) <= 3.0 and f"({run.epsilon}, 1e-05)" in text


def test_what_is_not_said_to_be_faster_is_slower():
    named = PARTS["faster"]()
    for row in recorded.step_times():
        ratio = recorded.interval(row["private / plain, graph"])
        line = re.search(rf"^\* {row['optimizer'].split(',')[0]}: (.*)\.$", named, re.MULTILINE)
        said = line is not None and recorded.model_of(row) in line[1].split(", ")
        assert ratio.high < 1 if said else ratio.low > 1


def test_every_row_of_the_step_times_is_a_bar():
    pytest.importorskip("matplotlib")
    from benchmarks.results.figures import step_time

    axes = step_time().axes[0]
    widths = [bar.get_width() for bar in axes.patches][::-1]
    rows = recorded.step_times()
    assert len(rows) == len(widths) > 10
    for row, width in zip(rows, widths, strict=True):
        numbers = [float(n) for n in re.findall(r"[\d.]+", row["private / plain, graph"])]
        assert width == pytest.approx(sum(numbers) / len(numbers))


def test_every_accuracy_is_a_point():
    pytest.importorskip("matplotlib")
    from benchmarks.results.figures import accuracy

    over_epsilon, at_one = accuracy().axes
    text = (ROOT / "docs" / "algorithms" / "gep.md").read_text(encoding="utf-8")
    for container in over_epsilon.containers:
        means = container[0].get_ydata()
        assert len(means) == 3 and all(f" {value:.2f} (" in text for value in means)
    assert len(over_epsilon.containers) == 3
    assert len(at_one.get_yticks()) == len(recorded.sst2())


def test_the_pictures_are_there_and_named_in_a_page(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks.results.figures import IMAGES, draw

    for path in draw(tmp_path):
        assert (IMAGES / path.name).exists()
        assert any(f"images/{path.name})" in text for text in PAGES.values())
