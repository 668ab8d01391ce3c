"""The version of the package and of the jar, which brokers are also told."""

VERSION = "0.1.0"
