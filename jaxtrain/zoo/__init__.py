"""Facts of the models, which are read without JAX: published results, and counts."""
