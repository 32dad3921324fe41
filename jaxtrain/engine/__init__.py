"""Passes over examples that do not train."""
