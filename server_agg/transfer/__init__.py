"""Transfer learning on the server (paper P, eq. 4): the next model is trained to predict what the round's uploaded
models predict on average.
"""

from phonograd.server_agg.transfer.closing import transfer
from phonograd.server_agg.transfer.settings import GENERATED, TransferSettings

__all__ = ["GENERATED", "TransferSettings", "transfer"]
