package org.phonograd;

import org.json.JSONException;
import org.json.JSONObject;

/** The server's answer to an update: it counts, and survives a power cut there. Immutable and thread-safe. */
public final class Receipt {
    /** The round that it counts in. */
    public final long round;
    /** Size of the update. */
    public final long bytes;
    /** Whether the round has ended. */
    public final boolean roundClosed;

    final String phone;

    Receipt(JSONObject json) throws JSONException {
        round = json.getLong("round");
        bytes = json.getLong("bytes");
        roundClosed = json.getBoolean("round_closed");
        phone = json.getString("phone");
    }
}
