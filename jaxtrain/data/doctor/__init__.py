"""Looks a data set over before it is trained on, by `main.py data --check`: `check`."""
