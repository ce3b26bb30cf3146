"""The processor that qemu plays where SME is not what a test is about: it takes minutes for SME's outer products."""

WITHOUT_SME = "max,sme=off"
