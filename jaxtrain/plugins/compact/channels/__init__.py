"""Dependency analysis and removal of channels."""
