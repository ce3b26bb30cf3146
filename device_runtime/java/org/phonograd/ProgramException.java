package org.phonograd;

import androidx.annotation.NonNull;
import java.io.IOException;

/** The program failed; the message is its own, or says that it printed none. */
public final class ProgramException extends IOException {
    private static final long serialVersionUID = 1;

    /** The exit code; 128 plus a signal's number if a signal ended it. */
    public final int code;
    /** What to do next. */
    @NonNull public final Ending.Outcome outcome;

    ProgramException(int code, String message) {
        super(message.isEmpty() ? "phonograd-phone printed nothing, exit code " + code : message);
        this.code = code;
        this.outcome = Ending.outcome(code, false);
    }
}
