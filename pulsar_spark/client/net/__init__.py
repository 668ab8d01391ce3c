"""Connections: TLS, logins, sessions and their pool, deadlines and retries, and the admin service.

Owns sockets and their threads. Must not depend on consumers, producers or topics' contents.
"""
