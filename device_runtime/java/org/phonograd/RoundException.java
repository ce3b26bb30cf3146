package org.phonograd;

import java.io.IOException;

/** The server refused, in its own words; or what answered is not the server. The message has no token and no path. */
public final class RoundException extends IOException {
    private static final long serialVersionUID = 1;

    /** The HTTP status. */
    public final int status;
    /** Whether the same request would be refused again: a bad token, a wrong name, an update that does not count. */
    public final boolean forGood;
    /** Seconds after which the server wants to be asked again; -1: it did not say. */
    public final long retryAfterSeconds;

    RoundException(String message, int status, boolean forGood, long retryAfterSeconds) {
        super(message);
        this.status = status;
        this.forGood = forGood;
        this.retryAfterSeconds = retryAfterSeconds;
    }
}
