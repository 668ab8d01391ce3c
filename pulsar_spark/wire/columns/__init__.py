"""Messages by column <-> the bytes of entries: batches, and unbatched messages."""
