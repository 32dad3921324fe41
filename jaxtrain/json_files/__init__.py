"""JSON files with typed values and digests."""
