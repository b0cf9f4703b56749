"""Steps written out as programs, to be run where there is a GPU and no TensorFlow."""
