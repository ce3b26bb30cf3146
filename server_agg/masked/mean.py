"""The mean of masked updates: summed as they arrive, unmasked and decoded at the close; private ones get noise."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, tile_ranges
from phonograd.device_runtime.masked.cohort import About, MaskedCohort, MaskedSum
from phonograd.server_agg.aggregation.privacy.clipped_sum import STEPS_PER_UNIT
from phonograd.server_agg.aggregation.privacy.mechanism import GaussianMean
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream, add_noise
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, RoundContext
from phonograd.server_agg.settings.masked import MaskedSettings


class Sums(Protocol):
    """What a mean of masked updates is made of: the round's cohort, and how its sum is added to and unmasked."""

    settings: MaskedSettings
    about: About

    @property
    def cohort(self) -> MaskedCohort:
        """Of the round's settings."""

    def new_sum(self) -> MaskedSum:
        """An empty sum."""

    def add(self, total: MaskedSum, path: Path) -> None:
        """Add a phone's update. Raises UpdateError."""

    def unmask(self, total: MaskedSum) -> int:
        """Take the masks out; the weight of all phones. Raises UpdateError."""


class MaskedMean(Aggregation):
    """fedavg, fedsgd and the private strategies over a masked round's sum: 4 bytes a parameter, decoded in place.

    It is of no use once `deltas` began: begin again and add the stored updates.
    """

    reads_at_close = False

    def __init__(
        self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext, round_: Sums
    ):
        super().__init__(settings, base, base_sha256, context)
        self.used = False
        self._round = round_
        self._sum = round_.new_sum()

    def close(self) -> None:
        """Free the sum."""
        self._sum.close()

    def check_file(self, path: Path) -> None:
        """Raise UpdateError unless it is a masked update of the round's cohort."""
        self._sum.check(self._round.cohort, path)

    def add_file(self, path: Path) -> None:
        """Add a masked update that was checked."""
        self._round.add(self._sum, path)

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The decoded sum over the sum of weights; of a private strategy, with noise, as PrivateMean divides it.

        Raises UpdateError if the sum can't be unmasked.
        """
        del updates
        if self.used:
            raise StorageError("masked sum: was decoded before; add the round's updates again")
        self.used = True
        cohort, elements, masked = self._round.cohort, self._round.about.elements, self._round.settings
        weight = self._round.unmask(self._sum)
        if not self.settings.private:
            yield from self._tiles(self._sum.decode(cohort, float(weight), elements))
            return
        # Phones clip, not the server: the guarantee holds if they do.
        of_phones = replace(self.settings, clip_norm=masked.sensitivity)
        mechanism = GaussianMean(of_phones, self.context.population, self.settings.noise_multiplier)
        divisor = mechanism.divisor(weight / masked.weight_cap)
        std = dict.fromkeys(self.base.specs, mechanism.noise_std * divisor * STEPS_PER_UNIT)
        tiles = self._tiles(self._sum.decode(cohort, float(masked.weight_cap), elements))
        whole = (np.rint(tile * STEPS_PER_UNIT) for tile in tiles)
        noise = NoiseStream(self.context.noise_key, self.context.number, "dp")
        for tile in add_noise(whole, self.base, noise, std, integer=True):
            yield tile / (divisor * STEPS_PER_UNIT)

    def _tiles(self, deltas: Array) -> Iterator[Array]:
        frozen, at = frozen_in(self.base), 0
        for name, spec in self.base.specs.items():
            for start, stop in tile_ranges(spec.elements):
                if name in frozen:
                    yield np.zeros(stop - start)
                    continue
                yield deltas[at : at + stop - start].astype(np.float64)
                at += stop - start
