"""The tables of `docs/compatibility.md`: `python -m tests.compatibility.page` writes them."""

from collections import Counter
from pathlib import Path

from tests.compatibility.case import REFUSED, SAMPLING, UNCHANGED, Example
from tests.compatibility.public_examples import EXAMPLES, FAMILIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
BEGIN = "<!-- written by `python -m tests.compatibility.page` -->\n"
WORDS = {
    UNCHANGED: "trains unchanged",
    SAMPLING: "trains after a `sampling=` statement",
    REFUSED: "refused; trains with the remedy",
}


def _row(example: Example) -> str:
    file = f"https://github.com/{example.repository}/blob/HEAD/{example.path}"
    link = f"[{example.repository}, {example.path}]({file})"
    outcome = WORDS[example.outcome]
    if example.cause and example.statement:
        outcome += ", and a `sampling=` statement"
    return f"| {link} | {example.what} | {outcome} | {example.reason} | {example.remedy} |"


def tables() -> str:
    """The counts and a table for each family, in Markdown."""
    counts = Counter(example.outcome for example in EXAMPLES)
    lines = ["| of all | examples |", "| --- | --- |"]
    lines += [f"| {words} | {counts[outcome]} |" for outcome, words in WORDS.items()]
    for family, examples in FAMILIES.items():
        lines += ["", f"## {family.capitalize()}", ""]
        lines += ["| source | what | outcome | cause | remedy |", "| --- | --- | --- | --- | --- |"]
        lines += [_row(example) for example in examples]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index(BEGIN) + len(BEGIN)] + tables(), encoding="utf-8")
