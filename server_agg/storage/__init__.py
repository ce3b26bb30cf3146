"""Durable state: the ledger in SQLite, and files named by their hash."""
