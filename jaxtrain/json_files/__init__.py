"""JSON files that are read back: typed values, under a digest."""
