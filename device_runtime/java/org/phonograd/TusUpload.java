package org.phonograd;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.net.HttpURLConnection;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.Pattern;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * Sends an update by tus 1.0. Not thread-safe.
 *
 * <p>Nothing is remembered between two processes: the server finds the phone's upload by the hash of its bytes, says how
 * many are there, and counts an update once, however often it is announced.
 */
final class TusUpload {
    private static final Pattern LOCATION = Pattern.compile("/v1/uploads/[0-9a-f]{32}");

    private static final int MAX_RECEIPT_BYTES = 1 << 12;

    private final ServerConnection server;
    private final File update;
    private final long length;
    private final String metadata;

    /** The upload of an update of a round, whose model has the hash {@code base}. */
    TusUpload(ServerConnection server, File update, long round, String base) throws IOException {
        this.server = server;
        this.update = update;
        length = update.length();
        metadata = pair("phone", server.phone) + "," + pair("sha256", AtomicFiles.sha256(update)) + ","
                + pair("base_sha256", base) + "," + pair("round", Long.toString(round));
    }

    /**
     * Sends what the server lacks, and returns the round of its receipt: the update counts there.
     *
     * @param unsent whether none of it was ever sent: then one request announces and brings it
     */
    long send(boolean unsent) throws IOException {
        HttpURLConnection created = server.request("POST", "/v1/uploads");
        created.setRequestProperty("Upload-Length", Long.toString(length));
        created.setRequestProperty("Upload-Metadata", metadata);
        send(created, unsent ? 0 : length);
        expect(created, 201);
        String location = created.getHeaderField("Location"), offset = created.getHeaderField("Upload-Offset");
        if (location == null || !LOCATION.matcher(location).matches() || offset == null || !offset.matches("[0-9]{1,18}")) {
            throw ServerConnection.stranger(created);
        }
        JSONObject answer = unsent ? ServerConnection.parsed(created.getInputStream(), MAX_RECEIPT_BYTES) : null;
        if (answer != null && !answer.isNull("receipt")) return receivedIn(created, answer);
        if (!unsent || Long.parseLong(offset) < length) append(location, Math.min(length, Long.parseLong(offset)));
        HttpURLConnection asked = server.request("GET", location);
        return receivedIn(asked, ServerConnection.json(asked));
    }

    // Also when nothing is missing: an update that was complete when the server's disk failed is decided on now.
    private void append(String location, long offset) throws IOException {
        HttpURLConnection appended = server.request("POST", location); // Java's HttpURLConnection has no PATCH
        appended.setRequestProperty("X-HTTP-Method-Override", "PATCH");
        appended.setRequestProperty("Upload-Offset", Long.toString(offset));
        send(appended, offset);
        expect(appended, 204);
    }

    private void send(HttpURLConnection request, long offset) throws IOException {
        request.setRequestProperty("Tus-Resumable", "1.0.0");
        request.setRequestProperty("Content-Type", "application/offset+octet-stream");
        request.setDoOutput(true);
        request.setFixedLengthStreamingMode(length - offset);
        byte[] buffer = new byte[1 << 16];
        try (RandomAccessFile in = new RandomAccessFile(update, "r"); OutputStream out = request.getOutputStream()) {
            in.seek(offset);
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) out.write(buffer, 0, count);
        }
    }

    private static void expect(HttpURLConnection request, int status) throws IOException {
        if (request.getResponseCode() != status) throw ServerConnection.refusal(request);
        if (!"1.0.0".equals(request.getHeaderField("Tus-Resumable"))) throw ServerConnection.stranger(request);
    }

    private long receivedIn(HttpURLConnection request, JSONObject outcome) throws IOException {
        try {
            if (outcome.isNull("receipt")) {
                int status = outcome.isNull("status") ? 0 : outcome.getInt("status");
                String message = "the update is " + outcome.getString("state") + ": " + outcome.optString("reason");
                throw new RoundException(message, status, ServerConnection.isForGood(status), -1);
            }
            JSONObject receipt = outcome.getJSONObject("receipt");
            if (receipt.getLong("bytes") == length) return receipt.getLong("round");
            throw ServerConnection.stranger(request);
        } catch (JSONException error) {
            throw ServerConnection.stranger(request);
        }
    }

    private static String pair(String key, String value) {
        return key + " " + Base64.getEncoder().encodeToString(value.getBytes(StandardCharsets.UTF_8));
    }
}
