"""The page of reproductions: every table and figure once, as the script writes it."""

import pathlib

from benchmarks.reproductions.gallery import ITEMS, STATES, page

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tables and figures that each paper has, appendices included.
NUMBERS = {
    "Fast clipping": {"Figure": 9, "Table": 0},
    "GEP": {"Figure": 7, "Table": 6},
    "RGP": {"Figure": 6, "Table": 5},
    "LSG": {"Figure": 5, "Table": 2},
}


def numbers_of(name):
    """`Figures 1 to 4: ...` and `Figure 4, Table 4: ...` as pairs of a kind and a number."""
    for part in name.partition(":")[0].split(", "):
        if part[0].isdigit():
            yield "Figure", int(part)
            continue
        kind, _, rest = part.partition(" ")
        first, _, last = rest.partition(" to ")
        for number in range(int(first), int(last or first) + 1):
            yield kind.rstrip("s"), number


def test_every_table_and_figure_of_the_papers_has_a_line():
    for paper, kinds in NUMBERS.items():
        found = {n for item in ITEMS if item.paper == paper for n in numbers_of(item.name)}
        assert found == {(k, n) for k, most in kinds.items() for n in range(1, most + 1)}


def test_every_line_has_a_state_and_says_what_there_is():
    assert all(item.state in STATES and item.ours for item in ITEMS)


def test_the_page_is_what_the_script_writes():
    assert (ROOT / "docs" / "reproductions.md").read_text(encoding="utf-8") == page()
