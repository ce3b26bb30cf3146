"""Exclusive use of a phone: lock it, push files by hash, run and watch programs, and undo everything at the end."""

from phonograd.android_harness.session.session import PhoneSession, find_leftovers, restore_phone
from phonograd.android_harness.session.settings import PROGRAM, WORK_FOLDER, SessionSettings

__all__ = ["PROGRAM", "WORK_FOLDER", "PhoneSession", "SessionSettings", "find_leftovers", "restore_phone"]
