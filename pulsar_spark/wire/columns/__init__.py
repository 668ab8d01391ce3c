"""Messages by column <-> the bytes of entries: batches, and entries that are single messages."""
