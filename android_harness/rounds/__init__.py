"""Federated rounds on phones connected over adb."""
