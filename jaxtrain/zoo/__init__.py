"""Published results and costs of the models, readable without JAX."""
