"""A training run: setup, training loop and callbacks."""
