"""The aggregation server: fold, strategies, rounds, ledger of bytes, HTTP application. No torch."""
