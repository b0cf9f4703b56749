"""Threads of the tests, and `pytest --hypothesis-profile=long`: ten times the hostile cases."""

import os

from hypothesis import settings

# Two processes share two cores: more threads in each would only wait for one another.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True)
