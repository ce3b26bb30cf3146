"""What an update weighs in an average."""

from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.refusals import InvalidUpdateError

# A weight of 1 under a token cap: weights are counted in millionths and a bit, 2**-20.
WEIGHT_STEPS = 1 << 20


def plain_weight(settings: StrategySettings, info: UpdateInfo) -> int:
    """Tokens (McMahan et al.: each token counts the same) or 1 (each phone does).

    Raises InvalidUpdateError for more tokens than one phone can have trained.
    """
    _check_claim(settings, info)
    return info.tokens if settings.weighting == "tokens" else 1


def capped_weight(settings: StrategySettings, info: UpdateInfo) -> int:
    """Paper M's w_k = min(tokens / w-hat, 1), or 1 without a cap; in steps of 2**-20, rounded down, at least one.

    Raises InvalidUpdateError for more tokens than one phone can have trained.
    """
    _check_claim(settings, info)
    if settings.token_cap is None:
        return WEIGHT_STEPS
    return max(1, min(WEIGHT_STEPS, info.tokens * WEIGHT_STEPS // settings.token_cap))


def _check_claim(settings: StrategySettings, info: UpdateInfo) -> None:
    if info.tokens > settings.max_tokens:
        raise InvalidUpdateError(
            f"the update claims {info.tokens} tokens, at most {settings.max_tokens} accepted; "
            "send what was trained in one round"
        )
