"""A federated round on real phones."""
