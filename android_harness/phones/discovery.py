"""The phones connected to this machine, queried in parallel."""

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.states import ABSENT, ONLINE, AdbDevice, problem
from phonograd.android_harness.errors import AdbError, NoPhoneError
from phonograd.android_harness.phones.facts import Phone, PhoneFacts
from phonograd.android_harness.phones.query import FACTS_SCRIPT, parse_facts
from phonograd.android_harness.phones.readiness import DEFAULT_READINESS, Readiness
from phonograd.device_runtime.base.errors import PhonogradError

FIRST_STEPS = "turn on USB debugging on a phone, plug it in and tap Allow on its screen: phonograd docs first-phone"


def discover(adb: Adb, rules: Readiness = DEFAULT_READINESS, serials: Sequence[str] = ()) -> list[Phone]:
    """The phones that adb lists, or those of `serials`, listed or not; each is queried in one shell call.

    Phones with the same serial get their full names as serials; that serial chooses all of them. Raises AdbError.
    """
    wanted = _choose(adb.devices(), serials)
    if not wanted:
        return []
    with ThreadPoolExecutor(max_workers=len(wanted)) as threads:
        return list(threads.map(lambda phone: _ask(adb, phone, rules), wanted))


def _choose(listed: Sequence[AdbDevice], serials: Sequence[str]) -> list[AdbDevice]:
    owners = Counter(phone.serial for phone in listed)
    wanted: dict[str, AdbDevice] = {}
    for serial in serials or owners:
        named = [phone for phone in listed if phone.is_called(serial)] or [AdbDevice(serial, ABSENT, {})]
        for phone in named:
            name = phone.full_name if owners[phone.serial] > 1 else phone.serial
            wanted[name] = replace(phone, serial=name)
    return list(wanted.values())


def serials_of_environment() -> tuple[str, ...]:
    """The phone that adb would work with where no other is named: ANDROID_SERIAL, if it is set."""
    serial = os.environ.get("ANDROID_SERIAL")
    return (serial,) if serial else ()


def ready_phones(
    adb: Adb, serials: Sequence[str] = (), rules: Readiness = DEFAULT_READINESS
) -> tuple[list[Phone], list[Phone]]:
    """The phones that are ready, and the others; of `serials`, else of ANDROID_SERIAL, else of all that adb lists.

    Raises NoPhoneError with each phone's reason and cure if no phone is ready or adb does not list one of `serials`;
    AdbError.
    """
    phones = discover(adb, rules, serials or serials_of_environment())
    ready = [phone for phone in phones if phone.ready]
    others = [phone for phone in phones if not phone.ready]
    absent = [phone for phone in others if phone.state == ABSENT]
    if absent:
        raise NoPhoneError("; ".join(map(not_ready_line, absent)))
    if not ready:
        raise none_ready_error(others)
    return ready, others


def none_ready_error(phones: Sequence[Phone]) -> NoPhoneError:
    """The error for `phones`, none of which is ready; may be empty."""
    if not phones:
        return NoPhoneError(f"no phone is connected; {FIRST_STEPS}")
    return NoPhoneError("no phone is ready: " + "; ".join(map(not_ready_line, phones)))


def not_ready_line(phone: Phone) -> str:
    """One line about a phone that is not ready: reason and cure."""
    return f"phone {phone.serial}: {phone.reason}; {phone.cure}"


def _ask(adb: Adb, phone: AdbDevice, rules: Readiness) -> Phone:
    if phone.state != ONLINE:
        why = problem(phone.state)
        return Phone(phone.serial, phone.state, None, why.reason, why.cure)
    try:
        answer = adb.shell(phone.serial, FACTS_SCRIPT, doing="reading its properties")
    except AdbError:
        raise
    except PhonogradError as error:
        reason, _, cure = str(error).removeprefix(f"phone {phone.serial}: ").partition("; ")
        return Phone(phone.serial, phone.state, None, reason, cure)
    return _with_readiness(phone, parse_facts(phone.serial, answer.out), rules)


def _with_readiness(phone: AdbDevice, facts: PhoneFacts, rules: Readiness) -> Phone:
    why = rules.problem(facts)
    if why is None:
        return Phone(phone.serial, phone.state, facts)
    return Phone(phone.serial, phone.state, facts, why.reason, why.cure)
