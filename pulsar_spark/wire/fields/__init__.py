"""Where the fields of messages lie in the bytes of batches and of metadata: found for many at once."""
