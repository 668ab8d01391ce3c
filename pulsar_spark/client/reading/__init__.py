"""Reading: ranges of entries, chunked messages, and probes of entries before they are read.

Owns which entries are read, and what is made of them. Must not know how anything is written.
"""
