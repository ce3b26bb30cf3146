"""A phone while it is ours: locked, files pushed by hash, programs run and watched, all of it undone at the end."""

from phonograd.android_harness.session.session import PhoneSession
from phonograd.android_harness.session.settings import PROGRAM, WORK_FOLDER, SessionSettings

__all__ = ["PROGRAM", "WORK_FOLDER", "PhoneSession", "SessionSettings"]
