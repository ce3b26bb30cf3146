"""Engines that do phonograd's work: Ray and Flower. Each needs an extra, and is imported only when asked for."""
