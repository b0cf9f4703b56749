"""The port to Keras: every private name of Keras and KerasHub that this package uses.

One function for each thing that public names do not give.  Nothing private is looked up before a
function is called, so that a new release of Keras can only break a function here, which says so;
`tests/port/` says of each what it must do.
"""
