"""Profiles of hypothesis: `pytest --hypothesis-profile=long` runs ten times the hostile cases."""

from hypothesis import settings

settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True)
