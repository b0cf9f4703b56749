"""Trains large networks where there is a GPU and no TensorFlow: whole steps, run by JAX."""
