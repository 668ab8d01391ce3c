"""Entries of a range are received, put together and acknowledged: permits, chunks, acks, and what is lost."""
