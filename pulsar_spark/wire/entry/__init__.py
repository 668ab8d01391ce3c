"""A topic's entries: metadata, checksums and compression, one by one and many at once."""
