"""The Spark side: the only layer that imports pyspark."""
