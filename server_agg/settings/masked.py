"""The settings of masked rounds, in which the server learns the updates' sum alone. FORMAT.md, "Masked rounds"."""

import functools
import json
import math
import re
from typing import Annotated, Literal

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.settings import NotNegative, Settings, as_dict
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.cohort import About, check_settings

FEWEST = 3  # phones of a cohort
TO_PHONES = ("bits", "support", "clip", "weight_cap", "cohort", "min_cohort", "curious", "dropouts", "steps")
PUBLIC_KEY = re.compile(r"[0-9a-f]{64}\Z")

_checked = functools.lru_cache(check_settings)  # a server asks for the same with each update


class MaskedSettings(Settings, frozen=True):
    """How phones mask their updates, and with whom. The ledger stores it with the round.

    Raises ValueError for a setting out of range, naming it, and what the native library raises where it can't be
    loaded: it has the rules of what phones get.
    """

    bits: Annotated[int, about("Bits of a code, 4, 8 or 16.")] = 8
    support: Annotated[int, about("Send one of 1, 4, 16 or 64 of the rotated weights, others in each round.")] = 1
    clip: Annotated[float, about("Largest L2 norm of a delta, to which phones hold; the server can't check it.")] = 15.0
    weight_cap: Annotated[int, about("A phone's weight is its tokens, cut to this; 1: all phones weigh the same.")] = 1
    cohort: Annotated[int, about("Phones that mask together, at most; in place of clients_per_round.")] = 100
    min_cohort: Annotated[int, about("Fewest phones of a cohort; with fewer, a round fails and releases nothing.")] = 50
    curious: Annotated[float, about("Share of the phones that may collude with the server.")] = 0.1
    dropouts: Annotated[float, about("Share of the phones that may drop out.")] = 0.3
    steps: Annotated[
        Literal[0, 1], about("1: a single step with the gradient of the whole text; 0: one for each window.")
    ] = 0
    distributed_noise: Annotated[
        NotNegative, about("Noise that phones add together: its standard deviation over how far one can move the sum.")
    ] = 0.0
    stage_seconds: Annotated[float, Meta(gt=0, le=86400), about("How long a stage waits for its phones.")] = 120.0
    vendor: Annotated[
        str | None, about("Public key that certifies phones (`phonograd keys`).  [default: any phone]")
    ] = None

    def check_together(self) -> None:
        """Raise ValueError for settings that the native library refuses, or that do not go together."""
        capped = self.distributed_noise != 0 and self.weight_cap > 1
        self.require("weight_cap", not capped, "1 with `distributed_noise`, which does not hide weights")
        known = self.vendor is None or bool(PUBLIC_KEY.match(self.vendor))
        self.require("vendor", known, "a public key, 64 digits of hex")
        try:
            self.about()
        except UsageError as error:
            raise ValueError(str(error)) from error

    def _text(self, noise: float) -> str:
        return json.dumps({name: getattr(self, name) for name in TO_PHONES} | {"noise": noise}, separators=(",", ":"))

    @property
    def text(self) -> str:
        """The settings as phones get them. Its bytes are hashed: the same settings, the same text.

        Its noise is the standard deviation of a phone's over `clip`: the honest phones of the least cohort have enough.
        """
        plain = _checked(self._text(0.0))
        per_clip = plain.sensitivity / self.support / self.clip
        return self._text(self.distributed_noise * per_clip / math.sqrt(plain.honest))

    def about(self, model: TensorFile | None = None) -> About:
        """What they mean for a model, or for any; see `check_settings`. Raises UsageError."""
        try:
            return _checked(self.text, sum(spec.elements for spec in trained_specs(model)) if model else 0)
        except UsageError as error:
            raise UsageError(str(error).replace("`noise`", "`distributed_noise`")) from error

    def effective_noise(self, about: About, phones: int, alive: int) -> float:
        """The z of the sum of a round: `alive` of a cohort of `phones` are in it. 0 without noise.

        about: of the round's model.
        """
        honest = alive - math.floor(self.curious * phones + 1e-9)  # as FORMAT.md has c
        reach = about.sensitivity / self.support / about.step  # with the rounding of each value
        return effective_noise(honest, about.noise, reach, about.values - 1)

    @property
    def weighting(self) -> str:
        """The strategy's `weighting` that says the same."""
        return "equal" if self.weight_cap == 1 else "tokens"

    def to_json(self) -> str:
        """All settings, as the ledger keeps them."""
        return json.dumps(as_dict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "MaskedSettings":
        """Parse the output of `to_json`. Raises ValueError or TypeError for anything else."""
        return cls(**json.loads(text))


def effective_noise(honest: int, sigma: float, reach: float, dimensions: int) -> float:
    """The multiplier z of Gaussian noise by which the sum is as private, in zero-concentrated differential privacy.

    Kairouz, Liu, Steinke 2021, *The Distributed Discrete Gaussian Mechanism*, Theorem 1: the sum of `honest` draws from
    N_Z(0, sigma^2) in each of `dimensions`, when one phone moves it by at most `reach` in L2, satisfies
    1/2 epsilon^2-zCDP, so that z = 1 / epsilon. sigma, reach: in steps of the grid. 0 if nobody adds noise.
    """
    if honest < 1 or sigma == 0:
        return 0.0
    tau = 10 * math.fsum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, honest))
    spread = reach / (math.sqrt(honest) * sigma)
    epsilon = min(math.sqrt(spread**2 + tau * dimensions / 2), spread + tau * math.sqrt(dimensions))
    return 1 / epsilon
