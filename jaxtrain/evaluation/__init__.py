"""Evaluation: the pass over a split, and reducers of the outputs."""
