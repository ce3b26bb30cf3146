"""Empirical privacy (paper P): how much more likely a model makes a text because one user's phone took part."""
