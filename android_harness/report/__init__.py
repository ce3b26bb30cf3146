"""What a phone bench found: its document, table, page and comparison."""
