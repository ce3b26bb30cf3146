package org.phonograd;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * The aggregation server, as one phone asks it. One request at a time; {@link #cancel} may come from any thread.
 *
 * <p>Redirects are not followed, and only an answer of the right kind is taken for the server's: a captive portal's page
 * is not. Where such an answer says that a model is elsewhere, it is fetched there without the token.
 */
public final class ServerConnection {
    /** Opens connections, to an object store too if the server names one: for an app with certificates or a proxy of its own. */
    public interface Opener {
        /** A connection that is not connected yet. */
        @NonNull
        HttpURLConnection open(@NonNull URL url) throws IOException;
    }

    static final Pattern SHA256 = Pattern.compile("[0-9a-f]{64}");

    private static final int MAX_JSON_BYTES = 1 << 16; // of most answers
    private static final long LONGEST_WAIT_SECONDS = 24 * 3600; // whatever Retry-After says
    private static final int CONNECT_MILLIS = 10_000, READ_MILLIS = 120_000; // a round's last update may take long
    private static final Pattern NAME = Pattern.compile("(?!\\.{1,2}$)[A-Za-z0-9._-]{1,64}");
    private static final Pattern TOKEN = Pattern.compile("pgd_[0-9a-f]{16}_[0-9a-f]{64}");
    private static final Pattern LOOPBACK = Pattern.compile("localhost|127\\.[0-9.]+|\\[::1\\]");

    private static final Pattern ELSEWHERE = Pattern.compile("(https?://[^/?#@]+)/.*");

    /** The phone's name at the server. */
    @NonNull public final String phone;

    private final String server;
    private final String token;
    private final Opener opener;
    private final Set<String> origins = new HashSet<>(); // the server's own, and what the app allows
    private HttpURLConnection current; // guarded by this
    private boolean cancelled; // guarded by this

    /**
     * A connection by the platform's own certificates.
     *
     * @param server such as https://example.org
     * @param phone the phone's name at the server: 1 to 64 of A-Z a-z 0-9 . _ - but neither . nor ..
     * @param token what {@code phonograd tokens add} showed for this phone; null: the server asks for none
     * @throws IllegalArgumentException if one of them is not what it should be, or http would send the token to another machine
     */
    public ServerConnection(@NonNull String server, @NonNull String phone, @Nullable String token) {
        this(server, phone, token, null);
    }

    /**
     * A connection that the app opens; null: the platform's.
     *
     * @param modelsFrom where else the server may send for a model, such as https://store.example:9000; a server with https may
     *     send to https anywhere
     */
    public ServerConnection(@NonNull String server, @NonNull String phone, @Nullable String token, @Nullable Opener opener,
            @NonNull String... modelsFrom) {
        require(server.matches("https?://[^/?#@]+(/[^?#]*)?"), "server: a URL such as https://example.org expected");
        URI url = URI.create(server);
        require(NAME.matcher(phone).matches(), "phone: 1 to 64 of A-Z a-z 0-9 . _ - but neither . nor .. expected");
        require(token == null || TOKEN.matcher(token).matches(), "token: pgd_..._... expected, as it was shown");
        boolean unread = url.getScheme().equals("https") || LOOPBACK.matcher(String.valueOf(url.getHost())).matches();
        require(token == null || unread, "server: https expected, http would send the token unencrypted");
        this.server = server.endsWith("/") ? server.substring(0, server.length() - 1) : server;
        this.phone = phone;
        this.token = token;
        this.opener = opener;
        origins.add(url.getScheme() + "://" + url.getRawAuthority());
        Collections.addAll(origins, modelsFrom);
    }

    /**
     * The server that {@link RoundClient#enroll} was told; null: it was not called yet.
     *
     * @throws UncheckedIOException if its file, server.json in the workspace, cannot be read, or was changed to something else
     */
    @Nullable
    public static ServerConnection read(@NonNull Workspace workspace) {
        try {
            return workspace.server.isFile() ? Enrolment.read(workspace.server) : null;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void require(boolean met, String message) {
        if (!met) throw new IllegalArgumentException(message);
    }

    /** Ends the request that is waiting, if there is one, and refuses all later ones. Returns at once. */
    public synchronized void cancel() {
        cancelled = true;
        final HttpURLConnection ended = current;
        if (ended == null) return;
        new Thread("phonograd-disconnect") {
            @Override
            public void run() { // TLS says goodbye, which Android forbids the main thread
                ended.disconnect();
            }
        }.start();
    }

    synchronized boolean isCancelled() {
        return cancelled;
    }

    /** A request whose headers can still be set. */
    HttpURLConnection request(String method, String path) throws IOException {
        HttpURLConnection request = open(method, new URL(server + path));
        request.setRequestProperty("Phonograd-Phone", phone);
        if (token != null) request.setRequestProperty("Authorization", "Bearer " + token);
        return request;
    }

    /** A request for the body of the server's own answer, at the URL in it: without token and name, from where the app allows. */
    HttpURLConnection elsewhere(HttpURLConnection answer, String url) throws IOException {
        Matcher found = ELSEWHERE.matcher(url);
        if (!found.matches()) throw stranger(answer);
        boolean secure = server.startsWith("https:") && url.startsWith("https:");
        if (!secure && !origins.contains(found.group(1))) {
            String message = "the server has its models at " + found.group(1) + ", which the app does not allow (modelsFrom)";
            throw new RoundException(message, answer.getResponseCode(), false, -1);
        }
        return open("GET", new URL(url));
    }

    private HttpURLConnection open(String method, URL url) throws IOException {
        HttpURLConnection request = opener == null ? (HttpURLConnection) url.openConnection() : opener.open(url);
        synchronized (this) {
            if (cancelled) throw new IOException("cancelled");
            current = request;
        }
        request.setRequestMethod(method);
        request.setInstanceFollowRedirects(false);
        request.setUseCaches(false);
        request.setConnectTimeout(CONNECT_MILLIS);
        request.setReadTimeout(READ_MILLIS);
        request.setRequestProperty("Accept-Encoding", "identity"); // Android would ask for gzip
        return request;
    }

    /** The open round, or the one that is closing. */
    OpenRound round() throws IOException {
        HttpURLConnection request = request("GET", "/v1/round");
        JSONObject json = json(request);
        try {
            return new OpenRound(json, retryAfter(request));
        } catch (JSONException error) {
            throw stranger(request);
        }
    }

    /** The JSON object that answers a request. */
    static JSONObject json(HttpURLConnection request) throws IOException {
        return json(request, MAX_JSON_BYTES);
    }

    /** The same, of at most so many bytes. */
    static JSONObject json(HttpURLConnection request, int maxBytes) throws IOException {
        if (request.getResponseCode() != 200) throw refusal(request);
        JSONObject json = isType(request, "application/json") ? parse(request.getInputStream(), maxBytes) : null;
        if (json == null) throw stranger(request);
        return json;
    }

    static boolean isType(HttpURLConnection request, String type) {
        String found = request.getContentType();
        return found != null && found.split(";")[0].trim().equalsIgnoreCase(type);
    }

    /** Why the server refused, if this is its answer. */
    static RoundException refusal(HttpURLConnection request) throws IOException {
        int status = request.getResponseCode();
        if (status < 400 || !isType(request, "application/problem+json")) return stranger(request);
        JSONObject problem = parse(request.getErrorStream(), MAX_JSON_BYTES);
        if (problem == null) problem = new JSONObject();
        long after = retryAfter(request);
        // For an upload that may continue, the answer says from where.
        boolean goesOn = after >= 0 || request.getHeaderField("Upload-Offset") != null;
        String message = "the server refused (" + status + " " + problem.optString("title") + "): " + problem.optString("detail");
        return new RoundException(message, status, isForGood(status) && !goesOn, after);
    }

    /** Whether the same request is refused again, unless the server says otherwise. */
    static boolean isForGood(int status) {
        return status >= 400 && status < 500 && status != 404 && status != 408 && status != 410 && status != 429 && status != 460;
    }

    /** What answered is not the server: a captive portal, a proxy, another service. */
    static RoundException stranger(HttpURLConnection request) throws IOException {
        int status = request.getResponseCode();
        String message = "an answer of phonograd's server expected, found another (" + status + "); is it a captive portal, or a proxy's?";
        return new RoundException(message, status, false, retryAfter(request));
    }

    /** Seconds of the answer's Retry-After, within bounds; -1: none. A date is not taken: the clock may be wrong. */
    static long retryAfter(HttpURLConnection request) {
        String text = request.getHeaderField("Retry-After");
        if (text == null || !text.matches("[0-9]{1,9}")) return -1;
        return Math.max(1, Math.min(LONGEST_WAIT_SECONDS, Long.parseLong(text)));
    }

    /** A body of at most so many bytes as JSON; null for anything else. */
    static JSONObject parse(InputStream in, int maxBytes) throws IOException {
        if (in == null) return null;
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        byte[] buffer = new byte[4096];
        try {
            for (int count = in.read(buffer); count >= 0 && body.size() < maxBytes; count = in.read(buffer)) {
                body.write(buffer, 0, count);
            }
            return new JSONObject(new String(body.toByteArray(), StandardCharsets.UTF_8));
        } catch (JSONException | StackOverflowError error) { // the parser recurses: a line of brackets
            return null;
        }
    }
}
