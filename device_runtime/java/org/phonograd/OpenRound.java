package org.phonograd;

import java.util.HashSet;
import java.util.Set;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** The server's round, and whether this phone has a place in it. Immutable. */
final class OpenRound {
    final long round, retryAfterSeconds;
    final String base;
    final String masked; // the settings of a masked round; empty: it is not masked
    final String run; // of a round of dp-ftrl, what the phone's count of its rounds needs; empty: it is of none
    final boolean oneStep, participate;
    final String reason;
    final Set<String> codecs = new HashSet<>();

    /** JSONException: a field is missing or wrong. */
    OpenRound(JSONObject json, long retryAfterSeconds) throws JSONException {
        round = json.getLong("round");
        base = json.getString("base_sha256");
        if (round < 1 || !ServerConnection.SHA256.matcher(base).matches()) throw new JSONException("round, base_sha256");
        masked = json.isNull("masked") ? "" : json.getString("masked");
        run = json.isNull("run") ? "" : json.getString("run");
        String strategy = json.getString("strategy");
        oneStep = strategy.equals("fedsgd") || strategy.equals("dp-fedsgd"); // as device_runtime/client/protocol.py
        participate = json.getBoolean("participate");
        reason = json.optString("reason");
        JSONArray names = json.getJSONArray("codecs");
        for (int at = 0; at < names.length(); at++) codecs.add(names.getString(at));
        this.retryAfterSeconds = retryAfterSeconds;
    }

    boolean is(long number, String model) {
        return round == number && base.equals(model);
    }
}
