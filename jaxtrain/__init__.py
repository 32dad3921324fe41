"""Train convolutional networks with JAX."""

__version__ = "0.1.0"
