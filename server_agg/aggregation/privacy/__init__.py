"""User-level differential privacy after McMahan et al.: clipping, estimators, noise, sampling, and what it all cost."""
