"""Several phones' training at once in PyTorch: every tensor has a leading axis of phones, P."""
