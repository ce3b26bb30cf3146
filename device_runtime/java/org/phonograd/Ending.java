package org.phonograd;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;

/** How a process ended. Immutable and thread-safe. */
public final class Ending {
    /** What to do next. */
    public enum Outcome {
        /** The update is on disk. */
        FINISHED(false),
        /** A signal ended it between two steps: the same command resumes. */
        INTERRUPTED(true),
        /** Memory or storage ran out, or it was killed (most likely for lack of memory): the same command resumes later. */
        TRY_LATER(true),
        /** The state is damaged, of another job, or in use: {@code --restart} discards it. */
        STATE_REFUSED(false),
        /** It would fail again: wrong text, model or option, a masked round that the phone took part in, or a bug. */
        FAILED(false);

        /** Whether the same command may succeed later. */
        public final boolean again;

        Outcome(boolean again) {
            this.again = again;
        }
    }

    /** What to do next. */
    @NonNull public final Outcome outcome;
    /** The exit code; 128 plus a signal's number if a signal ended it. */
    public final int code;
    /** The end of its stderr, at most {@link PhonogradProcess#MAX_MESSAGE_BYTES} bytes. It may name files. */
    @NonNull public final String message;
    /** The process's report, or null. */
    @Nullable public final TrainingListener.Report report;
    /** Number of lines on stdout that are not events; 0 unless the binary is not phonograd's. */
    public final int strayLines;

    Ending(int code, String message, TrainingListener.Report report, int strayLines) {
        this.outcome = outcome(code, report != null);
        this.code = code;
        this.message = message;
        this.report = report;
        this.strayLines = strayLines;
    }

    static Outcome outcome(int code, boolean reported) {
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
            case 17: // the state was refused
                return Outcome.STATE_REFUSED;
            default:
                return Outcome.FAILED;
        }
    }
}
