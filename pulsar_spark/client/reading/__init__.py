"""Reading: ranges of entries, chunked messages, and probes of entries before they are read.

Owns the choice of entries that are read, and their decoding. Must not depend on writing.
"""
