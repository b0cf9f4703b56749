"""Threads and memory of the tests, and `pytest --hypothesis-profile=long`."""

import gc
import itertools
import os

from hypothesis import settings

# Two processes share two cores: more threads in each would only wait for one another.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

# Ten times the hostile cases.
settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True)

_finished = itertools.count()


def pytest_runtest_teardown():
    """Graphs with loops are never freed: after thousands of tests, looking at them takes longer."""
    if next(_finished) % 25 == 0:
        gc.collect()
        gc.freeze()


def pytest_addoption(parser):
    parser.addoption(
        "--all-models", action="store_true", help="run all of tests/hostile/model_attacks"
    )
