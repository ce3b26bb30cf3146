"""The phones on this machine, asked all at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.states import ABSENT, ATTACHED, Attached, trouble
from phonograd.android_harness.errors import AdbError, NoPhoneError
from phonograd.android_harness.phones.asking import SCRIPT, facts_of
from phonograd.android_harness.phones.facts import Phone, PhoneFacts
from phonograd.android_harness.phones.readiness import USUAL, Readiness
from phonograd.device_runtime.base.errors import PhonogradError

FIRST_STEPS = "turn on USB debugging on a phone, plug it in and tap Allow on its screen: docs/first-phone.md"


def discover(adb: Adb, rules: Readiness = USUAL, serials: Sequence[str] = ()) -> list[Phone]:
    """All phones that adb lists, or those of `serials`, listed or not; each asked for its facts in one shell call.

    Raises AdbError.
    """
    attached = {phone.serial: phone for phone in adb.attached()}
    wanted = [attached.get(serial, Attached(serial, ABSENT, {})) for serial in dict.fromkeys(serials or attached)]
    if not wanted:
        return []
    with ThreadPoolExecutor(max_workers=len(wanted)) as threads:
        return list(threads.map(lambda phone: _ask(adb, phone, rules), wanted))


def ready_phones(adb: Adb, serials: Sequence[str] = (), rules: Readiness = USUAL) -> tuple[list[Phone], list[Phone]]:
    """Phones that work can begin on, and the others; all that adb lists, or those of `serials`.

    Raises NoPhoneError, naming each phone's reason and cure, if none is ready or adb does not list one of `serials`;
    AdbError.
    """
    phones = discover(adb, rules, serials)
    ready = [phone for phone in phones if phone.ready]
    others = [phone for phone in phones if not phone.ready]
    absent = [phone for phone in others if phone.state == ABSENT]
    if absent:
        raise NoPhoneError("; ".join(map(why_not, absent)))
    if not ready:
        raise none_ready(others)
    return ready, others


def none_ready(phones: Sequence[Phone]) -> NoPhoneError:
    """The error for phones of which none is ready, or for no phones."""
    if not phones:
        return NoPhoneError(f"no phone is attached; {FIRST_STEPS}")
    return NoPhoneError("no phone is ready: " + "; ".join(map(why_not, phones)))


def why_not(phone: Phone) -> str:
    """A line on a phone that is not ready: its reason and the cure."""
    return f"phone {phone.serial}: {phone.reason}; {phone.cure}"


def _ask(adb: Adb, phone: Attached, rules: Readiness) -> Phone:
    if phone.state != ATTACHED:
        why = trouble(phone.state)
        return Phone(phone.serial, phone.state, None, why.reason, why.cure)
    try:
        answer = adb.shell(phone.serial, SCRIPT, doing="asking what it is")
    except AdbError:
        raise
    except PhonogradError as error:
        reason, _, cure = str(error).removeprefix(f"phone {phone.serial}: ").partition("; ")
        return Phone(phone.serial, phone.state, None, reason, cure)
    return _judged(phone, facts_of(phone.serial, answer.out), rules)


def _judged(phone: Attached, facts: PhoneFacts, rules: Readiness) -> Phone:
    why = rules.trouble(facts)
    if why is None:
        return Phone(phone.serial, phone.state, facts)
    return Phone(phone.serial, phone.state, facts, why.reason, why.cure)
