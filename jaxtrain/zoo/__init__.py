"""Facts of the models, readable without JAX: published results and counts."""
