"""Training across a few nodes from scratch: averaging after whole epochs (paper P, Tables 4 and 5) against Deep
Gradient Compression, which exchanges a thousandth of the gradients after every step.
"""
