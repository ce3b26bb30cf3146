"""What phones download before they train: the one rule of simulations, and what `train --server` does.

Every phone has the first model, which came with the app. Who takes part in a round downloads its base model: as links
from the model that it had last, where the server keeps them and they are smaller together than the model, else whole.
"""

from collections.abc import Mapping, Sequence

from phonograd.server_agg.settings.server import ServerSettings
from phonograd.simulation.records import RoundRecord
from phonograd.simulation.schedule import Participation


def bytes_down(
    parts: Sequence[Participation], held: Mapping[str, int], rounds: Sequence[RoundRecord], model_bytes: int
) -> int:
    """Bytes that the phones of the round after `rounds` download, all together.

    held: by user, the round whose model the phone had last; 0, the first one, if it is not there. model_bytes: of the
    base model's file.
    """
    return sum(_of_phone(rounds[held.get(part.user, 0) :], model_bytes) for part in parts)


def _of_phone(behind: Sequence[RoundRecord], model_bytes: int) -> int:
    """Bytes for a phone that lacks the models of these rounds."""
    links = [ended.link_bytes for ended in behind if ended.outcome == "closed"]
    known = [nbytes for nbytes in links if nbytes is not None]
    most = ServerSettings.links_kept
    if len(known) < len(links) or (most is not None and len(links) > most):
        return model_bytes
    return min(sum(known), model_bytes)
