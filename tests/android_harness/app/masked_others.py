"""Native phones of Python beside an app in a masked round, which go as far as the server lets them."""

import json
from collections.abc import Sequence
from pathlib import Path

import httpx

from phonograd.device_runtime.client.server_client import upload_update
from phonograd.device_runtime.masked.phone import MaskedPhone, PhoneMasking, certify, new_identity
from phonograd.server_agg.settings.masked import MaskedSettings
from tests.server_agg.workshop import client_of

MASKED = MaskedSettings(cohort=3, min_cohort=3, support=64, stage_seconds=8.0e4)
SIZES = {"clients_per_round": 3, "weighting": "equal", "masked": MASKED}


class Others:
    """Phones of round 1, with the same grid update. vendor: the key file that certifies them."""

    def __init__(
        self, folder: Path, url: str, grid: Path, names: Sequence[str], vendor: tuple[Path, str] | None = None
    ):
        self.url, self.phones = url, {}
        for name in names:
            key = folder / f"{name}.key"
            public = new_identity(key)
            certificate = None if vendor is None else certify(vendor[0], name, public)
            pinned = None if vendor is None else vendor[1]
            masking = PhoneMasking(
                state=folder / f"{name}.state", identity=key, certificate=certificate, vendor=pinned, min_cohort=3
            )
            self.phones[name] = MaskedPhone(masking, name, grid, 1)

    def go(self, before: str = "") -> None:
        """All go on until all wait, or are done, or come to the message `before`."""
        with client_of(self.url, {}) as http:
            while any(self._deliver(http, name, phone, before) for name, phone in self.phones.items()):
                pass

    def _deliver(self, http: httpx.Client, name: str, phone: MaskedPhone, before: str) -> bool:
        request = phone.request()
        if request.action == "done" or request.path.rpartition("/")[2] == before:
            return False
        if request.action == "upload":
            upload_update(self.url, request.file, name)
            phone.take(None)
            return True
        answer = http.post(request.path, content=request.body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (200, 202), answer.text
        if answer.status_code == 200:
            phone.take(json.dumps(answer.json()))
        return answer.status_code == 200

    def close(self) -> None:
        for phone in self.phones.values():
            phone.close()
