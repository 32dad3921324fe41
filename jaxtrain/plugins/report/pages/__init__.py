"""Pages for people: one file each, which needs nothing else and holds no script."""
