package org.phonograd;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.net.HttpURLConnection;
import java.net.ProtocolException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.Matcher;
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
    private static final Pattern LOCATION = Pattern.compile(".*(/v1/uploads/[0-9a-f]{32})");

    private static final int MAX_RECEIPT_BYTES = 1 << 12;
    // Pieces, once a proxy has refused more at once: each refusal may cost as much as it refuses.
    private static final long LARGE_PIECE = 1 << 23, MIN_PIECE = 1 << 16;
    // After a broken connection: a proxy that refuses may close before all is sent, and its answer is lost. nginx's default.
    private static final long CAUTIOUS_PIECE = 1 << 20;
    // Bytes to send at once, as far as this process has learned.
    private static volatile long most = Long.MAX_VALUE;

    private final ServerConnection server;
    private final File update;
    private final long length;
    private final String metadata;
    private long piece; // bytes to send at once
    private boolean overriding; // PATCH is named in a header

    /** The upload of an update of a round, whose model has the hash {@code base}. */
    TusUpload(ServerConnection server, File update, long round, String base) throws IOException {
        this.server = server;
        this.update = update;
        length = update.length();
        piece = Math.min(length, most);
        metadata = pair("phone", server.phone) + "," + pair("sha256", AtomicFiles.sha256(update)) + ","
                + pair("base_sha256", base) + "," + pair("round", Long.toString(round));
    }

    /**
     * Sends what the server lacks, and returns the round of its receipt: the update counts there.
     *
     * @param unsent whether none of it was ever sent: then one request announces and brings it
     */
    long send(boolean unsent) throws IOException {
        unsent &= piece == length;
        HttpURLConnection created = announce(unsent ? 0 : length);
        if (isTooMuch(created, length)) {
            unsent = false;
            created = announce(length);
        }
        expect(created, 201);
        String location = locationOf(created), offset = created.getHeaderField("Upload-Offset");
        if (location == null || offset == null || !offset.matches("[0-9]{1,18}")) throw ServerConnection.stranger(created);
        JSONObject answer = unsent ? ServerConnection.parse(created.getInputStream(), MAX_RECEIPT_BYTES) : null;
        if (answer != null && !answer.isNull("receipt")) return receivedIn(created, answer);
        if (!unsent || Long.parseLong(offset) < length) append(location, Math.min(length, Long.parseLong(offset)));
        HttpURLConnection asked = server.request("GET", location);
        return receivedIn(asked, ServerConnection.json(asked));
    }

    private HttpURLConnection announce(long offset) throws IOException {
        HttpURLConnection created = server.request("POST", "/v1/uploads");
        created.setRequestProperty("Upload-Length", Long.toString(length));
        created.setRequestProperty("Upload-Metadata", metadata);
        send(created, offset, length);
        return created;
    }

    /** The upload's path under the server's URL, whatever prefix and host a proxy added or lost; null: it has none. */
    private static String locationOf(HttpURLConnection created) {
        try {
            URI resolved = created.getURL().toURI().resolve(String.valueOf(created.getHeaderField("Location")));
            Matcher found = LOCATION.matcher(String.valueOf(resolved.getPath()));
            return found.matches() ? found.group(1) : null;
        } catch (URISyntaxException | IllegalArgumentException none) {
            return null;
        }
    }

    // Also when nothing is missing: an update that was complete when the server's disk failed is decided on now.
    private void append(String location, long offset) throws IOException {
        for (boolean done = false; !done; ) {
            long end = Math.min(length, offset + piece);
            HttpURLConnection appended = patch(location);
            appended.setRequestProperty("Upload-Offset", Long.toString(offset));
            send(appended, offset, end);
            if (isTooMuch(appended, end - offset) || isBlocked(appended)) continue;
            expect(appended, 204);
            offset = end;
            done = offset == length;
        }
    }

    private HttpURLConnection patch(String location) throws IOException {
        try {
            if (!overriding) return server.request("PATCH", location);
        } catch (ProtocolException unknown) {
            overriding = true; // Android's HttpURLConnection has PATCH, Java's has not
        }
        HttpURLConnection request = server.request("POST", location);
        request.setRequestProperty("X-HTTP-Method-Override", "PATCH");
        return request;
    }

    /** Whether a proxy takes no PATCH; then a header names it from now on. */
    private boolean isBlocked(HttpURLConnection request) throws IOException {
        int status = request.getResponseCode();
        if (status != 405 && status != 501 || overriding != isServers(request)) return false;
        if (!overriding) return overriding = true;
        String message = "a proxy before the server removes X-HTTP-Method-Override, by which this system sends PATCH; it must let it pass";
        throw new RoundException(message, status, false, -1);
    }

    /** Whether a proxy takes no request of so many bytes; then pieces are smaller from now on. The server's own 413 is for good. */
    private boolean isTooMuch(HttpURLConnection request, long count) throws IOException {
        if (request.getResponseCode() != 413 || isServers(request)) return false;
        piece = most = Math.max(MIN_PIECE, Math.min(count / 2, LARGE_PIECE));
        if (count > MIN_PIECE) return true;
        String proxy = request.getHeaderField("Server"), limit = "; it must let " + MIN_PIECE + " pass (nginx: client_max_body_size 0;)";
        throw new RoundException("a proxy before the server (" + proxy + ") refuses " + count + " bytes (413)" + limit, 413, false, -1);
    }

    private static boolean isServers(HttpURLConnection request) {
        return "1.0.0".equals(request.getHeaderField("Tus-Resumable"));
    }

    private void send(HttpURLConnection request, long offset, long end) throws IOException {
        request.setRequestProperty("Tus-Resumable", "1.0.0");
        request.setRequestProperty("Content-Type", "application/offset+octet-stream");
        request.setDoOutput(true);
        request.setFixedLengthStreamingMode(end - offset);
        byte[] buffer = new byte[1 << 16];
        try (RandomAccessFile in = new RandomAccessFile(update, "r"); OutputStream out = request.getOutputStream()) {
            in.seek(offset);
            for (long left = end - offset; left > 0; ) {
                int count = in.read(buffer, 0, (int) Math.min(buffer.length, left));
                if (count < 0) throw new IOException(update + " has become shorter");
                out.write(buffer, 0, count);
                left -= count;
            }
        } catch (IOException broken) {
            if (end - offset > CAUTIOUS_PIECE) most = Math.max(CAUTIOUS_PIECE, Math.min((end - offset) / 2, LARGE_PIECE));
            throw broken;
        }
    }

    private static void expect(HttpURLConnection request, int status) throws IOException {
        if (request.getResponseCode() != status) throw ServerConnection.refusal(request);
        if (!isServers(request)) throw ServerConnection.stranger(request);
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
