"""DP-FTRL's rounds. buffers: the noise's state between rounds. strategy: dp-ftrl. Their mathematics: correlation."""
