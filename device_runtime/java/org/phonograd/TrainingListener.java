package org.phonograd;

/**
 * Hears what an epoch does. All methods are called in order on one thread, which is the process's own and no main thread;
 * {@link #onEnded} is the last call, and comes for sure once {@link PhonogradProcess#start} has returned.
 *
 * <p>No event holds a word of the user's text. A RuntimeException thrown here ends the epoch at once and is thrown on
 * after {@link #onEnded}.
 */
public interface TrainingListener {
    /** The first step is about to begin. */
    default void onStarted(Started event) {}

    /** A step is done. */
    default void onStep(Step event) {}

    /** All steps so far will survive a kill. */
    default void onSaved(Saved event) {}

    /** A signal ended the epoch between two steps. */
    default void onInterrupted(Interrupted event) {}

    /** The update is on disk. */
    default void onReport(Report event) {}

    /** The process has ended, whatever way. */
    void onEnded(Ending ending);

    /** The job, as the engine understood it. Times in seconds. */
    final class Started {
        /** Of the binary. */
        public final String version;
        /** Steps of the epoch. */
        public final long steps;
        /** Steps that an earlier process has done. */
        public final long resumedAt;
        /** From the process's start to here. */
        public final double loadSeconds;

        Started(String version, long steps, long resumedAt, double loadSeconds) {
            this.version = version;
            this.steps = steps;
            this.resumedAt = resumedAt;
            this.loadSeconds = loadSeconds;
        }
    }

    /** One step. */
    final class Step {
        /** Counted from 1. */
        public final long step;
        /** Steps of the epoch. */
        public final long steps;
        /** Nats a token, before the update. */
        public final double loss;
        /** Wall time. */
        public final double seconds;

        Step(long step, long steps, double loss, double seconds) {
            this.step = step;
            this.steps = steps;
            this.loss = loss;
            this.seconds = seconds;
        }
    }

    /** A state on disk. */
    final class Saved {
        /** Steps it holds. */
        public final long step;
        /** Of its file. */
        public final long bytes;

        Saved(long step, long bytes) {
            this.step = step;
            this.bytes = bytes;
        }
    }

    /** An epoch cut off. */
    final class Interrupted {
        /** Steps done. */
        public final long step;
        /** Steps of the epoch. */
        public final long steps;
        /** Whether the same command goes on from here. */
        public final boolean saved;

        Interrupted(long step, long steps, boolean saved) {
            this.step = step;
            this.steps = steps;
            this.saved = saved;
        }
    }

    /** An epoch done. */
    final class Report {
        /** Steps of the epoch. */
        public final long steps;
        /** Tokens trained on, rehearsal included. */
        public final long tokens;
        /** Of the first and the last step, nats a token. */
        public final double lossFirst, lossLast;
        /** Of the steps of all processes. */
        public final double secondsPerStepMedian;
        /** The most memory that this process held (VmHWM). */
        public final long peakRssBytes;
        /** The update file. */
        public final String updatePath;
        /** Of the update file. */
        public final long updateBytes;
        /** Of the update file, hexadecimal. */
        public final String updateSha256;

        Report(long steps, long tokens, double lossFirst, double lossLast, double secondsPerStepMedian,
                long peakRssBytes, String updatePath, long updateBytes, String updateSha256) {
            this.steps = steps;
            this.tokens = tokens;
            this.lossFirst = lossFirst;
            this.lossLast = lossLast;
            this.secondsPerStepMedian = secondsPerStepMedian;
            this.peakRssBytes = peakRssBytes;
            this.updatePath = updatePath;
            this.updateBytes = updateBytes;
            this.updateSha256 = updateSha256;
        }
    }
}
