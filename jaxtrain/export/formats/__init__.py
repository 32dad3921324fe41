"""Kinds of files, each a module that writes one and runs it again.

`check_request` refuses what the format cannot hold, `write` makes the file or folder,
and `load` returns what runs it, as a user of the file would.
"""
