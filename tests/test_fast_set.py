"""Plain `pytest` touches everything that the full suite does, if not in all its cases."""

import inspect
import re
from pathlib import Path

import pytest

import tf_lowrank_dp as tfdp
from tests import fast_set
from tests.contracts.layer_cases import LAYER_CASES, build_model
from tests.contracts.optimizer_cases import OPTIMIZER_CASES
from tests.hostile.configurations import CONFIGURATIONS
from tests.mutations.mutations import MUTATIONS
from tf_lowrank_dp.layers import registry

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tf_lowrank_dp"
FAST = fast_set.listed() | fast_set.noticing_mutations()
ROWS = "tests/contracts/test_layers.py::test_layer_equals_oracle_in_graph_mode"
FITS = "tests/contracts/test_optimizers.py::test_fit_saves_loads_and_continues"
RECORDS = "tests/hostile/test_hostile_records.py::test_a_hostile_record_moves"
OPTIMIZERS = {
    thing
    for thing in vars(tfdp).values()
    if inspect.isclass(thing)
    and issubclass(thing, tfdp.extend.DPOptimizer)
    and thing != tfdp.extend.DPOptimizer
}


def fast_cases(function):
    """What is in brackets in the names of the fast cases of a test."""
    return [name.partition("[")[2][:-1] for name in FAST if name.startswith(function)]


def fast_rows():
    names = [case.removeprefix("reweight-5-") for case in fast_cases(ROWS)]
    return [case for case in LAYER_CASES if case.name in names]


def test_each_name_is_that_of_a_test(collected):
    assert sorted(FAST - collected) == []


def test_each_mutation_is_noticed():
    fast = {name.partition("[")[0] for name in FAST}
    for mutation in MUTATIONS:
        assert fast & {f"tests/{test}".partition("[")[0] for test in mutation.tests}, mutation.what


def test_each_capture_of_a_layer_has_a_row():
    used = {c for row in fast_rows() for _, c in registry.captured_layers(build_model(row))}
    captures = {c for c in registry._CAPTURES.values() if c.__module__.startswith(PACKAGE.name)}
    assert {capture.__name__ for capture in captures - used} == set()


def test_each_family_of_layers_has_a_row():
    families = [
        {re.match("[a-z]+", row.name)[0] for row in rows} for rows in (fast_rows(), LAYER_CASES)
    ]
    assert families[0] == families[1]


def test_each_optimizer_trains_and_meets_hostile_records():
    names = fast_cases(FITS)
    assert {row.make for row in OPTIMIZER_CASES} == {
        row.make for row in OPTIMIZER_CASES if row.name in names
    }
    assert {CONFIGURATIONS[name].optimizer for name in fast_cases(RECORDS)} == OPTIMIZERS


GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TESTS_OF = {
    part: re.findall("`(.+?)`", tests)
    for part, tests in re.findall(
        r"^\| `([a-z_]+(?:/|\.py))` \| (`tests/.+`) \|$", GUIDE, re.MULTILINE
    )
}


def test_the_guide_names_tests_of_each_part_of_the_package():
    parts = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    parts |= {path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py"}
    assert {*TESTS_OF} == parts


@pytest.mark.parametrize("part", TESTS_OF)
def test_some_tests_of_each_part_are_fast(part):
    for tests in TESTS_OF[part]:
        assert (ROOT / tests).exists()
        assert any(name.startswith(tests) for name in FAST), tests
