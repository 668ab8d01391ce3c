"""The version of the package and the jar, also sent in CONNECT."""

VERSION = "0.1.0"
