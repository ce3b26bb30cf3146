"""What the server must not lose: the ledger in SQLite, and files by their hash."""
