"""Accuracy at a privacy budget: experiments of the papers and comparisons of methods."""
