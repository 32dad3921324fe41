"""Looks a data set over before it is trained on: `main.py data --check`.

`check.py` is the way through, top to bottom; the other files are an idea each.
"""
