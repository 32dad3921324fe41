"""Transforms of a step: what it does beside loss, gradients and optimizer."""
