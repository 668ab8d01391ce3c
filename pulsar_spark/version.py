"""The version of the package and the jar, which CONNECT sends."""

VERSION = "0.1.0"
