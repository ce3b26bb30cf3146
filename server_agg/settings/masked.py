"""The settings of masked rounds, in which the server learns the updates' sum alone. FORMAT.md, "Masked rounds"."""

import functools
import json
import math
import re
from dataclasses import asdict, dataclass

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.cohort import About, check_settings
from phonograd.server_agg.aggregation.privacy.distributed import effective_noise

FEWEST = 3  # phones of a cohort
TO_PHONES = ("bits", "support", "clip", "weight_cap", "cohort", "min_cohort", "curious", "dropouts", "steps")
PUBLIC_KEY = re.compile(r"[0-9a-f]{64}\Z")

_checked = functools.lru_cache(check_settings)  # a server asks for the same with each update


@dataclass(frozen=True)
class MaskedSettings:
    """How phones mask their updates, and with whom. The ledger stores it with the round.

    bits: of a code. support: one of so many rotated elements is sent, others in each round. clip: the largest L2 norm
        of a delta; phones hold to it, the server can't check it. weight_cap: a phone's weight: its tokens, cut to this.
    cohort: phones that mask together, at most; min_cohort: at least, and how many of them must get through.
    curious, dropouts: shares of the cohort that may work with the server, and that may drop out.
    steps: 1: phones take a single step with the gradient of their whole text; 0: one for each window.
    distributed_noise: the noise that phones add together, in standard deviations over how far one phone of full weight
        can move the sum; 0: none.
    stage_seconds: how long a stage of the round waits for its phones.
    vendor: the public key that certifies phones, hex; None: certificates are not looked at.

    Raises ValueError for a setting out of range, naming it, and what the native library raises where it can't be
    loaded: it has the rules of what phones get.
    """

    bits: int = 8
    support: int = 1
    clip: float = 15.0
    weight_cap: int = 1
    cohort: int = 100
    min_cohort: int = 50
    curious: float = 0.1
    dropouts: float = 0.3
    steps: int = 0
    distributed_noise: float = 0.0
    stage_seconds: float = 120.0
    vendor: str | None = None

    def __post_init__(self) -> None:
        capped = self.distributed_noise != 0 and self.weight_cap > 1
        checks = (
            ("distributed_noise", 0 <= self.distributed_noise < math.inf, "at least 0"),
            ("weight_cap", not capped, "1 with `distributed_noise`, which does not hide weights"),
            ("stage_seconds", 0 < self.stage_seconds <= 86400, "more than 0, at most 86400"),
            ("vendor", self.vendor is None or bool(PUBLIC_KEY.match(self.vendor)), "a public key, 64 digits of hex"),
            ("clip", math.isfinite(self.clip), "a finite number"),  # JSON has no other
        )
        for name, good, expected in checks:
            if not good:
                raise ValueError(f"`{name}` is {getattr(self, name)!r}, expected {expected}")
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
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "MaskedSettings":
        """Parse the output of `to_json`. Raises ValueError or TypeError for anything else."""
        return cls(**json.loads(text))
