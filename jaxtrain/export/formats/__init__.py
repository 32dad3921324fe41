"""Kinds of files: modules that write one, and load it as a user of the file would."""
