"""The oracle of Gaussian noise."""

import pytest


@pytest.fixture
def gaussian():
    return pytest.importorskip(
        "dp_accounting.gaussian_mechanism", reason="dp_accounting has it from 0.6 on"
    )
