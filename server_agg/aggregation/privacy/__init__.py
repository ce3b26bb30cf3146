"""User-level differential privacy after McMahan et al. (paper M), without SQL, HTTP and files.

mechanism: sampling, clipping, sensitivity. adaptive_clip: a norm bound that follows the norms. noise:
deterministic, from a key. clipped_sum: what it is added to. strategy: dp-fedavg and dp-fedsgd. ftrl: dp-ftrl.
accountant: epsilon of composed mechanisms. budget: epsilon spent by rounds.

Its settings are in StrategySettings (aggregation/settings.py), its ledger queries in rounds/privacy.py, the noise key's
file in storage/noise_keys.py.
"""
