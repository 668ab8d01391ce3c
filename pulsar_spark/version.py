"""The version, in one place: of the package, of what it tells brokers, and of the jar."""

VERSION = "0.1.0"
