"""The entries of a topic: their metadata, checksums and compression, one by one and many at once."""
