"""The benchmark: our source and sink, beside Spark's transport alone and ``pulsar-client`` alone."""
