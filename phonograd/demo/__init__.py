"""One federated round at full size, from corpus to report: `phonograd demo`."""
