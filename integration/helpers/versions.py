"""The versions of Pulsar that are claimed beside the usual one, `conf/pom.xml` of `pulsar_spark_broker`."""

OLDEST_LINE, NEWEST_LINE = "4.0.7", "5.0.1"
