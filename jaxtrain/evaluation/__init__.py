"""The only loop over examples that is not training, and what it computes."""
