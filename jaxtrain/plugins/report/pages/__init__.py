"""HTML pages: self-contained single files without scripts."""
