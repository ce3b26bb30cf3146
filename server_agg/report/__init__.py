"""What rounds cost, from the ledger."""
