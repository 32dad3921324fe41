"""Evaluation: the loop over the batches of a split, and reducers of model outputs."""
