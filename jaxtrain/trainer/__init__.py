"""A training run: its parts, its loop, its callbacks."""
