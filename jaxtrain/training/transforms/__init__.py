"""Transforms of a step: everything besides loss, gradients and optimizer."""
