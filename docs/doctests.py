"""Examples in docstrings are shown as code: an extension of griffe, which reads them."""

import re

import griffe

_DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def fenced(text):
    """A docstring with fences around its examples."""
    return _DOCTEST.sub(r"```pycon\n\g<0>\n```", text)


class Doctests(griffe.Extension):
    """Puts fences around what begins with `>>>`, up to the next empty line."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
