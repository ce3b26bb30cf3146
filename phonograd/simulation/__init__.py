"""Federated rounds of virtual phones on one machine, folded by the server's own aggregation, without HTTP."""
