"""Reports on the cost of rounds, from the ledger."""
