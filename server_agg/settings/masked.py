"""The settings of masked rounds, in which the server learns the updates' sum alone. FORMAT.md, "Masked rounds"."""

import json
import math
import re
from dataclasses import asdict, dataclass

from phonograd.server_agg.aggregation.privacy.distributed import effective_noise

BITS = (4, 8, 16)
SUPPORTS = (1, 4, 16, 64)
FEWEST, MOST = 3, 2048  # phones of a cohort
MOST_WEIGHT = 1 << 20
WIDEST = 31  # bits of a value of a masked update
LARGEST_CLIP = 1e6
MOST_NOISE = 1000.0
TO_PHONES = ("bits", "support", "clip", "weight_cap", "cohort", "min_cohort", "curious", "dropouts", "noise")
PUBLIC_KEY = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class MaskedSettings:
    """How phones mask their updates, and with whom. The ledger stores it with the round.

    bits: of a code. support: one of so many rotated elements is sent, others in each round. clip: the largest L2 norm
        of a delta; phones hold to it, the server can't check it. weight_cap: a phone's weight: its tokens, cut to this.
    cohort: phones that mask together, at most; min_cohort: at least, and how many of them must get through.
    curious, dropouts: shares of the cohort that may work with the server, and that may drop out.
    distributed_noise: the noise that phones add together, in standard deviations over `sensitivity`; 0: none.
    stage_seconds: how long a stage of the round waits for its phones.
    vendor: the public key that certifies phones, hex; None: certificates are not looked at.

    Raises ValueError for a setting out of range, naming it.
    """

    bits: int = 8
    support: int = 1
    clip: float = 15.0
    weight_cap: int = 1
    cohort: int = 100
    min_cohort: int = 50
    curious: float = 0.1
    dropouts: float = 0.3
    distributed_noise: float = 0.0
    stage_seconds: float = 120.0
    vendor: str | None = None

    def __post_init__(self) -> None:
        checks = (
            ("bits", self.bits in BITS, "4, 8 or 16"),
            ("support", self.support in SUPPORTS, "1, 4, 16 or 64"),
            ("clip", 1e-6 <= self.clip <= LARGEST_CLIP, f"at least 1e-6, at most {LARGEST_CLIP:g}"),
            ("weight_cap", 1 <= self.weight_cap <= MOST_WEIGHT, f"1 to {MOST_WEIGHT}"),
            ("cohort", FEWEST <= self.cohort <= MOST, f"{FEWEST} to {MOST} phones"),
            ("min_cohort", FEWEST <= self.min_cohort <= self.cohort, f"{FEWEST} to `cohort` ({self.cohort})"),
            ("curious", 0 <= self.curious <= 0.5, "at least 0, at most 0.5"),
            ("dropouts", 0 <= self.dropouts <= 0.5, "at least 0, at most 0.5"),
            ("distributed_noise", 0 <= self.distributed_noise <= MOST_NOISE, f"at least 0, at most {MOST_NOISE:g}"),
            ("weight_cap", not (self.distributed_noise and self.weight_cap > 1), "1 with `distributed_noise`"),
            ("stage_seconds", 0 < self.stage_seconds <= 86400, "more than 0, at most 86400"),
            ("vendor", self.vendor is None or bool(PUBLIC_KEY.match(self.vendor)), "a public key, 64 digits of hex"),
        )
        for name, good, expected in checks:
            if not good:
                raise ValueError(f"`{name}` is {getattr(self, name)!r}, expected {expected}")
        if self.width > WIDEST:
            raise ValueError(
                f"`cohort` {self.cohort} x `weight_cap` {self.weight_cap} x codes of {self.bits} `bits` is a sum of "
                f"{self.width} bits, expected at most {WIDEST}; lower one of them"
            )
        for phones in range(self.min_cohort, self.cohort + 1):
            curious, dropped = math.floor(self.curious * phones), math.floor(self.dropouts * phones)
            if (phones + curious) // 2 + 1 > phones - dropped:
                raise ValueError(
                    f"`curious` {self.curious:g} and `dropouts` {self.dropouts:g} leave {phones - dropped} of {phones} "
                    f"phones, expected {(phones + curious) // 2 + 1}, who must agree; lower one of them"
                )

    @property
    def level(self) -> int:
        """The largest code, L."""
        return int(2 ** (self.bits - 1)) - 1

    @property
    def width(self) -> int:
        """Bits of a value of a masked update, w, without noise: the largest cohort's sum fits."""
        return (2 * self.cohort * self.weight_cap * self.level + 1).bit_length()

    @property
    def sensitivity(self) -> float:
        """How far a phone of full weight can move the decoded sum over `weight_cap`, in L2, if it clips: its delta, all
        of it in the elements that are sent, and the rounding of each of them.
        """
        return self.support * self.clip * (1 + 6 / (self.level * math.sqrt(self.support)))

    def honest(self, phones: int, alive: int | None = None) -> int:
        """How many of a cohort of `phones`, of which `alive` are left (None: as few as may be), add noise for sure."""
        curious = math.floor(self.curious * phones)
        return ((phones + curious) // 2 + 1 if alive is None else alive) - curious

    @property
    def noise(self) -> float:
        """The standard deviation of a phone's noise over `clip`: the least cohort's honest phones have enough."""
        per_clip = self.sensitivity / self.support / self.clip
        return self.distributed_noise * per_clip / math.sqrt(self.honest(self.min_cohort))

    def effective_noise(self, values: int, phones: int, alive: int) -> float:
        """The z of a round's sum of so many values: `alive` of a cohort of `phones` are in it. 0 without noise."""
        steps = math.sqrt((values - 1) * self.support) * self.level / 6  # of the grid in `clip`
        reach = steps + math.sqrt(values - 1)  # rounding moves each value by less than a step
        return effective_noise(self.honest(phones, alive), self.noise * steps, reach, values - 1)

    @property
    def text(self) -> str:
        """The settings as phones get them. Its bytes are hashed: the same settings, the same text."""
        return json.dumps({name: getattr(self, name) for name in TO_PHONES}, separators=(",", ":"))

    def to_json(self) -> str:
        """All settings, as the ledger keeps them."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "MaskedSettings":
        """Parse the output of `to_json`. Raises ValueError or TypeError for anything else."""
        return cls(**json.loads(text))
