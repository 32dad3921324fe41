"""Dependency analysis of channels, and models with fewer channels."""
