"""Cases are labelled rightly: shown in plain Keras, by nothing of this package."""

import numpy as np
import pytest

from tests.hostile.model_attacks.generated import GENERATED_HONEST, GENERATED_HOSTILE
from tests.hostile.model_attacks.methods_honest import METHODS_HONEST
from tests.hostile.model_attacks.methods_hostile import METHODS_HOSTILE
from tests.hostile.model_attacks.plain_oracle import Oracle, what_is_hostile, what_is_not_honest
from tests.hostile.model_attacks.stock_honest import STOCK_HONEST
from tests.hostile.model_attacks.stock_hostile import STOCK_HOSTILE

HOSTILE = [*STOCK_HOSTILE, *METHODS_HOSTILE, *GENERATED_HOSTILE]
HONEST = [*STOCK_HONEST, *METHODS_HONEST, *GENERATED_HONEST]


def test_names_are_unique_and_kinds_are_those_of_the_list():
    for kind, cases in (("hostile", HOSTILE), ("honest", HONEST)):
        assert {case.kind for case in cases} == {kind}
        assert len({case.name for case in cases}) == len(cases) >= 30


@pytest.mark.parametrize("case", [*HOSTILE, *HONEST], ids=lambda case: f"{case.kind}-{case.name}")
def test_a_case_trains_in_plain_keras(case):
    assert np.isfinite(Oracle(case).train()).all()


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_in_a_hostile_case_others_reach_an_example(case):
    oracle = Oracle(case)
    oracle.demonstrate()
    assert what_is_hostile(oracle) is not None


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_in_an_honest_case_they_never_do(case):
    oracle = Oracle(case)
    assert what_is_not_honest(oracle) is None
    oracle.demonstrate()
    assert what_is_not_honest(oracle) is None
