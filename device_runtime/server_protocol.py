"""What the aggregation server and its clients agree on beyond HTTP itself."""

import re

# Names the phone that sends an update or fetches a model; the server's ledger keeps it.
PHONE_HEADER = "Phonograd-Phone"
PHONE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
PHONE_NAME_RULE = "1 to 64 of A-Z a-z 0-9 . _ -"
