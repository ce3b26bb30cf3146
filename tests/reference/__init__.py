"""A second writing of FORMAT.md's rules, in plain Python and NumPy, that the native library is held to.

It is short and slow, and shares no code with the product.
"""
