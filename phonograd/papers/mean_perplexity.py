"""Paper P's mean perplexity, over its test texts together."""

import math

# Thousands of tokens in the paper's tests: general text and the users'.
_GENERAL, _USERS = 170, 200


def mean_perplexity(general: float, users: float) -> float:
    """The perplexity over both texts, of a perplexity on each."""
    nats = _GENERAL * math.log(general) + _USERS * math.log(users)
    return math.exp(nats / (_GENERAL + _USERS))
