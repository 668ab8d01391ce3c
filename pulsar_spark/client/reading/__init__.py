"""Reading: consumers, ranges of entries, chunked messages, and probes of entries before they are read.

Owns subscriptions and what comes through them. Must not know how anything is written.
"""
