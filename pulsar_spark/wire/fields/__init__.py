"""Finds the positions of fields in the bytes of batches and metadata, for many messages at once."""
