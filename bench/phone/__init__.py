"""Costs of the phone binary, found without a phone: instructions by qemu, cycles of inner loops by llvm-mca."""
