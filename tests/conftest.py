"""Settings of all tests."""

from hypothesis import settings

# A deadline is a timing: a busy machine would fail it.
settings.register_profile("phonograd", deadline=None)
settings.load_profile("phonograd")
