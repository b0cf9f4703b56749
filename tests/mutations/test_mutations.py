"""The list of mutations fits the code, the rules and the page; running them all takes minutes."""

import pytest

from tests.mutations.mutations import MUTATIONS, RULES
from tests.mutations.run import PAGE, ROOT, mutated


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.what)
def test_every_mutation_applies_to_the_code_and_names_tests_that_exist(mutation):
    for file, old, new in mutation.edits:
        text = (ROOT / "tf_lowrank_dp" / file).read_text()
        compile(mutated(text, old, new), file, "exec")
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / "tests" / path).read_text()


def test_every_rule_is_broken_by_a_mutation_and_the_page_has_a_test_for_each():
    assert {mutation.rule for mutation in MUTATIONS} == set(RULES) == set(range(19))
    rows = [line for line in PAGE.read_text().splitlines() if "`tests" in line or ".py::" in line]
    assert len(rows) == len(MUTATIONS)
    for mutation, line in zip(MUTATIONS, rows, strict=True):
        assert mutation.what in line and ".py::test_" in line
