"""Transfer learning on the server (paper P, eq. 4): the next model is trained to predict what the round's uploaded
models predict on average.
"""
