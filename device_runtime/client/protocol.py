"""The protocol between the aggregation server and its clients, beyond HTTP itself."""

import ipaddress
import re
from functools import lru_cache

# The name of the phone that sends an update or fetches a model; the server's ledger keeps it.
PHONE_HEADER = "Phonograd-Phone"
# In a URL, . and .. would be the folder and the one above it.
PHONE_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}\Z")
PHONE_NAME_RULE = "1 to 64 of A-Z a-z 0-9 . _ - but neither . nor .."

# The name of a metric of model quality: printable ASCII.
METRIC_CHARACTERS = 64
METRIC = re.compile(r"[ -~]{1,64}\Z")

# `pgd_<public id>_<secret>`: 64 and 256 random bits. The prefix lets scanners for leaked secrets find it.
TOKEN = re.compile(r"pgd_([0-9a-f]{16})_([0-9a-f]{64})\Z")
TOKEN_RULE = "pgd_<16 hex digits>_<64 hex digits>"

# Strategies that average single steps: an update says that its phone took one, with the gradient of its whole text.
ONE_STEP_STRATEGIES = ("fedsgd", "dp-fedsgd")

# The content type of links from a model that the client has, in place of a whole model.
LINKS_TYPE = "application/vnd.phonograd.links"

# The URL of an answer's body, in an answer without one: on another host, which must not see the token.
ELSEWHERE_HEADER = "Phonograd-Elsewhere"

# The tus protocol for resumable uploads: its version, and the content type of its PATCH bodies.
TUS_VERSION = "1.0.0"
TUS_BODY_TYPE = "application/offset+octet-stream"


@lru_cache(maxsize=1000)  # a server asks of each request
def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
