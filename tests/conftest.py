"""Plain `pytest`, `--part` or `--all`; threads and memory; `pytest --hypothesis-profile=long`."""

import gc
import itertools
import os

import pytest
from hypothesis import settings

from tests import fast_set

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


# What these test are whole fits, and TensorFlow's optimiser of graphs would take a third of their
# time.  It is on, as it is for users, where numbers are tested: contracts, mechanism, hostile.
_UNOPTIMIZED = {"compatibility", "faults", "training"}


@pytest.fixture(autouse=True, scope="module")
def graph_optimizer(request):
    """Switches TensorFlow's optimiser of graphs off in some folders, and on again after them."""
    if request.path.parent.name not in _UNOPTIMIZED:
        yield
        return
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run all tests, not the fast set alone")
    parser.addoption("--part", help="K/N: of the tests that are not in the fast set, part K of N")
    parser.addoption(
        "--all-models", action="store_true", help="run all of tests/hostile/model_attacks"
    )


_COLLECTED = pytest.StashKey[set]()


def pytest_collection_modifyitems(config, items):
    """Leaves the fast set, unless files, folders, `--all` or a part of the others were named."""
    if config.getoption("file_or_dir"):
        return
    names = {item: fast_set.names_of(item.nodeid) for item in items}
    config.stash[_COLLECTED] = set().union(*names.values())
    if config.getoption("--all"):
        return
    fast = fast_set.listed() | fast_set.noticing_mutations()
    part = config.getoption("--part")

    def chosen(item):
        if part:
            return not names[item] & fast and fast_set.is_in_part(item.nodeid, part)
        return names[item] & fast

    config.hook.pytest_deselected(items=[item for item in items if not chosen(item)])
    items[:] = [item for item in items if chosen(item)]


@pytest.fixture
def collected(request):
    """The names of all tests, whether they run or not."""
    if _COLLECTED not in request.config.stash:
        pytest.skip("files or folders were named, so that other tests were not looked for")
    return request.config.stash[_COLLECTED]
