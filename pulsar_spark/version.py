"""The version of the package and of the jar, which CONNECT also names."""

VERSION = "0.1.0"
