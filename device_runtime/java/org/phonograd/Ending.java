package org.phonograd;

/** How a process ended. Immutable and thread-safe. */
public final class Ending {
    /** What to do next. */
    public enum Outcome {
        /** The update is on disk. */
        FINISHED(false),
        /** A signal ended it between two steps: the same command goes on. */
        INTERRUPTED(true),
        /** Memory or storage ran out, or it was killed (for memory, most likely): the same command goes on, later. */
        TRY_LATER(true),
        /** The state is damaged, another job's, or in use: {@code --restart} discards it. */
        STATE_REFUSED(false),
        /** It would end the same way again: a wrong text, model or option, or a bug. */
        FAILED(false);

        /** Whether the same command may succeed later. */
        public final boolean again;

        Outcome(boolean again) {
            this.again = again;
        }
    }

    /** What to do next. */
    public final Outcome outcome;
    /** The exit code; 128 and more: a signal's number. */
    public final int code;
    /** The end of what it said on stderr, at most {@link PhonogradProcess#MAX_MESSAGE_BYTES}. It may name files. */
    public final String message;
    /** What it reported, or null. */
    public final TrainingListener.Report report;
    /** Lines on stdout that are no events: other than 0 only for a foreign binary. */
    public final int strayLines;

    Ending(int code, String message, TrainingListener.Report report, int strayLines) {
        this.outcome = outcome(code, report != null);
        this.code = code;
        this.message = message;
        this.report = report;
        this.strayLines = strayLines;
    }

    private static Outcome outcome(int code, boolean reported) {
        switch (code) {
            case 0:
                return reported ? Outcome.FINISHED : Outcome.FAILED;
            case 128 + 2: // SIGINT
            case 128 + 15: // SIGTERM
                return Outcome.INTERRUPTED;
            case 11: // the file system refused
            case 26: // out of memory
            case 128 + 9: // SIGKILL
                return Outcome.TRY_LATER;
            case 17: // of the state
                return Outcome.STATE_REFUSED;
            default:
                return Outcome.FAILED;
        }
    }
}
