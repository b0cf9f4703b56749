"""Benchmarks of tf_lowrank_dp: speed, memory and accuracy. See README.md in this folder."""

import os
from pathlib import Path

# Read by Keras and TensorFlow when they are first imported, hence here.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# Commands without the folder still work: `python -m benchmarks.fit_time`.  Imports name it.
FOLDERS = ("speed", "reproductions", "faults", "results")
__path__ += [str(Path(__file__).resolve().parent / folder) for folder in FOLDERS]
