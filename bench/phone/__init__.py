"""What the phone binary costs, found without a phone: instructions by qemu, cycles of inner loops by llvm-mca."""
