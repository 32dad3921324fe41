"""Published results and costs of the models, importable without JAX."""
