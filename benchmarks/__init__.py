"""Benchmarks of tf_lowrank_dp: speed, memory and accuracy. See README.md in this folder."""

import os

# Read by Keras and TensorFlow when they are first imported, hence here.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
