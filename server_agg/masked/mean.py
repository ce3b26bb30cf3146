"""The mean of masked updates: summed as they arrive, unmasked and decoded at the close; private ones get noise."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, all_tiles
from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum
from phonograd.server_agg.aggregation.privacy.clipped_sum import STEPS_PER_UNIT
from phonograd.server_agg.aggregation.privacy.mechanism import GaussianMean
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream, add_noise
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, RoundContext
from phonograd.server_agg.log_format import event
from phonograd.server_agg.masked.stages import Facts

log = logging.getLogger(__name__)


class MaskedMean(Aggregation):
    """fedavg, fedsgd and the private strategies over a masked round's sum: 4 bytes a parameter, decoded in place.

    facts: what is known of the cohort, at any time. It is of no use once `deltas` began: begin again and add the stored
    updates.
    """

    reads_at_close = False

    def __init__(
        self,
        settings: StrategySettings,
        base: TensorFile,
        base_sha256: str,
        context: RoundContext,
        facts: Callable[[], Facts],
    ):
        super().__init__(settings, base, base_sha256, context)
        self.used = False
        self._facts = facts
        self._about = facts().settings.about(base)
        self._sum = MaskedSum(self._about.values, self._about.width)

    def add_file(self, path: Path) -> None:
        """Add an update. Raises UpdateError, with nothing changed, for a file that is not the cohort's."""
        self._sum.add(self._facts().cohort, path)

    def _unmask(self, facts: Facts) -> int:
        """Take the masks out by the phones' answers; the weight of all phones. Raises UpdateError."""
        unmasked = self._sum.unmask(facts.cohort, facts.messages["answer"])
        if unmasked.wrong:
            wrong = ", ".join(unmasked.wrong)
            log.warning("shares of %s did not fit", wrong, extra=event("wrong_shares", phones=wrong))
        return unmasked.weight

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The decoded sum over the sum of weights; of a private strategy, with noise, as PrivateMean divides it.

        Raises UpdateError if the sum can't be unmasked.
        """
        del updates
        if self.used:
            raise StorageError("masked sum: was decoded before; add the round's updates again")
        self.used = True
        facts = self._facts()
        masked, weight = facts.settings, self._unmask(facts)
        if not self.settings.private:
            yield from self._tiles(facts.cohort, float(weight))
            return
        # Phones clip, not the server: the guarantee holds if they do.
        of_phones = replace(self.settings, clip_norm=self._about.sensitivity)
        mechanism = GaussianMean(of_phones, self.context.population, self.settings.noise_multiplier)
        divisor = mechanism.divisor(weight / masked.weight_cap)
        std = dict.fromkeys(self.base.specs, mechanism.noise_std * divisor * STEPS_PER_UNIT)
        tiles = self._tiles(facts.cohort, float(masked.weight_cap))
        whole = (np.rint(tile * STEPS_PER_UNIT) for tile in tiles)
        noise = NoiseStream(self.context.noise_key, self.context.number, "dp")
        for tile in add_noise(whole, self.base, noise, std, integer=True):
            yield tile / (divisor * STEPS_PER_UNIT)

    def _tiles(self, cohort: MaskedCohort, divisor: float) -> Iterator[Array]:
        deltas = self._sum.decode(cohort, divisor, self._about.elements)
        frozen, at = frozen_in(self.base), 0
        for name, start, stop in all_tiles(self.base.specs):
            if name in frozen:
                yield np.zeros(stop - start)
                continue
            yield deltas[at : at + stop - start].astype(np.float64)
            at += stop - start
