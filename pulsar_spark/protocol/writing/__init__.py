"""Packs rows into entries, and tracks them until they are stored: batches, partitions, schemas, receipts."""
