"""Weights of models by other names and in other layouts than ours."""
