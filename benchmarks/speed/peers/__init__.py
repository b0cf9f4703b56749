"""Private training beside that of other libraries, each in a virtual environment of its own.

`python -m benchmarks.speed.peers` makes the environments, and times all sides in turn, in rounds.
"""
