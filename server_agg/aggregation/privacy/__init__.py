"""Differential privacy of phones' users, after McMahan et al. (paper M): all of it that needs no SQL, HTTP or files.

mechanism: sampling, clipping, sensitivity. noise: from a key, the same each time. strategy: dp-fedavg and dp-fedsgd.
accountant: epsilon of mechanisms composed. budget: what rounds have spent.

Its settings are StrategySettings's (aggregation/settings.py). What it asks of the ledger is in rounds/privacy.py, the
file with the noise key in storage/noise_keys.py.
"""
