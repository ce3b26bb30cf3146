package org.phonograd;

import androidx.annotation.NonNull;

/**
 * Receives the events of an epoch. All methods are called in order on one thread of the process, not the main thread;
 * {@link #onEnded} is the last call, and always comes once {@link PhonogradProcess#start} has returned.
 *
 * <p>No event contains any of the user's text. A RuntimeException thrown here ends the epoch at once and is rethrown after
 * {@link #onEnded}.
 */
public interface TrainingListener {
    /** The first step is about to begin. */
    default void onStarted(@NonNull Started event) {}

    /** A step is done. */
    default void onStep(@NonNull Step event) {}

    /** The state was saved: all steps so far survive a kill. */
    default void onSaved(@NonNull Saved event) {}

    /** A signal ended the epoch between two steps. */
    default void onInterrupted(@NonNull Interrupted event) {}

    /** The update is on disk. */
    default void onReport(@NonNull Report event) {}

    /** The process has ended. */
    void onEnded(@NonNull Ending ending);

    /** The epoch that starts. Times in seconds. */
    final class Started {
        /** Version of the binary. */
        @NonNull public final String version;
        /** Steps of the epoch. */
        public final long steps;
        /** Steps done by earlier processes. */
        public final long resumedAt;
        /** Time since the process started. */
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
        /** Loss before the step's update, in nats per token. */
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
        /** Steps in the state. */
        public final long step;
        /** Size of its file. */
        public final long bytes;

        Saved(long step, long bytes) {
            this.step = step;
            this.bytes = bytes;
        }
    }

    /** An interrupted epoch. */
    final class Interrupted {
        /** Steps done. */
        public final long step;
        /** Steps of the epoch. */
        public final long steps;
        /** Whether the same command resumes from here. */
        public final boolean saved;

        Interrupted(long step, long steps, boolean saved) {
            this.step = step;
            this.steps = steps;
            this.saved = saved;
        }
    }

    /** A finished epoch. */
    final class Report {
        /** Steps of the epoch. */
        public final long steps;
        /** Tokens trained on, rehearsal included. */
        public final long tokens;
        /** Loss of the first and the last step, in nats per token. */
        public final double lossFirst, lossLast;
        /** Median over the steps of all processes. */
        public final double secondsPerStepMedian;
        /** Peak memory of this process (VmHWM). */
        public final long peakRssBytes;
        /** The update file. */
        @NonNull public final String updatePath;
        /** Size of the update file. */
        public final long updateBytes;
        /** SHA-256 of the update file, in hexadecimal. */
        @NonNull public final String updateSha256;

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
