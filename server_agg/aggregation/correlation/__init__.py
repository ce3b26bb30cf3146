"""Correlated noise of DP-FTRL, as mathematics: noise of later rounds takes back what earlier rounds added.

blt: the correlation, and its streaming form. sensitivity: how far one phone can move a run. optimise: the correlation
of least error. errors: of its running sum, beside independent noise and tree aggregation. run: what is fixed before the
first round.
"""
