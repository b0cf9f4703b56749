"""A sample of the suite by default; all of it with `pytest --all-models`."""

import importlib.util

# Some models are made of layers of KerasHub.
collect_ignore_glob = [] if importlib.util.find_spec("keras_hub") else ["*.py"]
EVERY = {"test_models_are_judged.py": 5}


def pytest_collection_modifyitems(config, items):
    if config.getoption("--all-models"):
        return
    left_out, seen = [], {}
    for item in items:
        if "model_attacks" not in str(item.path) or not hasattr(item, "callspec"):
            continue
        seen[item.function] = seen.get(item.function, 0) + 1
        if seen[item.function] % EVERY.get(item.path.name, 12) != 1:
            left_out.append(item)
    items[:] = [item for item in items if item not in set(left_out)]
    config.hook.pytest_deselected(items=left_out)
