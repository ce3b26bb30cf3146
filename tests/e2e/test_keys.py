"""`phonograd keys`: keys in files, public keys and certificates on stdout."""

from pathlib import Path

from tests.reference.masked import lines, signed_by
from tests.support.command_line import Run


def test_keys_are_made_and_certified(phono: Run, tmp_path: Path) -> None:
    vendor, phone = tmp_path / "vendor.key", tmp_path / "phone.key"
    public = phono("keys", "init", vendor, "--json").document["public_key"]
    identity = phono("keys", "new", phone).out.strip()
    assert phono("keys", "show", vendor).out.strip() == public
    made = phono("keys", "sign", vendor, "phone1", identity, "--json").document
    assert made.keys() == {"phone", "public_key", "certificate"}
    assert signed_by(public, made["certificate"], lines("phonograd-phone-1", "phone1", identity))
    assert phono("keys", "sign", vendor, "phone1", identity).out.strip() == made["certificate"]


def test_a_name_that_no_phone_has_is_refused(phono: Run, tmp_path: Path) -> None:
    phono("keys", "init", tmp_path / "vendor.key")
    outcome = phono("keys", "sign", tmp_path / "vendor.key", "no name", "00" * 32)
    assert (outcome.code, outcome.out) == (2, "")
    assert "PHONE: " in outcome.err and "found 'no name'" in outcome.err
