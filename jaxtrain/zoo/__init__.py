"""Facts about the models, readable without JAX: published results and costs."""
