"""Prints the lowest versions that `pyproject.toml` allows, of what a user and the tests need.

KerasHub is left out: nothing but its own layers needs it.
"""

import pathlib
import tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
requirements = project["dependencies"] + project["optional-dependencies"]["test"]
print(*(one.replace(">=", "==") for one in requirements if not one.startswith("keras-hub")))
