"""The output sample of a job: the words of its windows, and a sample of the others by the artifacts' counts."""

import numpy as np

from phonograd.bench.worker import Job
from phonograd.device_runtime.engine.backend import OutputSample
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.device_runtime.text.vocabulary import Vocabulary

SEED = 0  # every contestant draws the same words


def sample_of(job: Job, artifacts: Artifacts) -> OutputSample | None:
    """None for the full softmax. Raises ArtifactsError, VocabularyError."""
    if job.output_sample is None:
        return None
    vocabulary = Vocabulary.load(artifacts.path(VOCABULARY), artifacts.manifest.model.vocabulary)
    return draw_output_sample(
        np.unique(np.load(job.windows)), vocabulary.frequencies(), SampleDraw(job.output_sample, SEED)
    )
