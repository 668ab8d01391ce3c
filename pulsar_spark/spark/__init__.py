"""The Spark side: the only place that imports pyspark."""
