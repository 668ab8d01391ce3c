"""Connections: TLS, logins, sessions, the pool of them, deadlines and retries, and the admin service.

Owns sockets and their threads. Must not know consumers, producers or topics' contents.
"""
