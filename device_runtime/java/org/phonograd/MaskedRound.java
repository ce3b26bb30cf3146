package org.phonograd;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * A phone's part in a masked round, once it is trained: sends what {@code phonograd-phone mask} says, and gives it the answers.
 * The program stores its place in the round, and repeats its request after a kill. Not thread-safe; for the holder of the StepLock.
 */
class MaskedRound {
    private static final int MAX_ANSWER_BYTES = 4 << 20; // the keys of 4,096 phones have 3 MB

    /** The round of the masked update's receipt, if this object sent it; 0: it did not. */
    long receivedRound;

    private final Workspace workspace;
    private final ServerConnection server;
    private final PhoneMasking masking;
    private final long round;
    private final String base;

    /** The part in a round, whose model has the hash {@code base}, with the workspace's grid update. */
    MaskedRound(Workspace workspace, ServerConnection server, PhoneMasking masking, long round, String base) {
        this.workspace = workspace;
        this.server = server;
        this.masking = masking;
        this.round = round;
        this.base = base;
    }

    /** The phone's public key, in hexadecimal; the first call makes the key. */
    static String identity(Workspace workspace) throws IOException {
        List<String> line = Arrays.asList(workspace.binary.getPath(), "identity", workspace.identity.getPath());
        try {
            return Program.run(line).getString("public_key");
        } catch (JSONException error) {
            throw new IOException("phonograd-phone identity printed no key", error);
        }
    }

    /** Called before and after whatever changes the disk: where tests kill the process. */
    void step() {}

    /**
     * Continues as far as the server lets it.
     *
     * @return seconds after which to go on; 0: this phone has done its part
     * @throws RoundException if the server refused; for good: the round is over for this phone
     * @throws ProgramException with an outcome that is not to try again: this phone has left the round, or had its part in it
     */
    long goOn() throws IOException {
        if (!workspace.identity.isFile()) identity(workspace);
        step();
        try {
            // Without an answer: one on disk may be used up, and wrong for the next step. The server gives it again.
            JSONObject next = askProgram();
            for (; !next.getString("action").equals("done"); next = askProgram("--answer", workspace.answer.getPath())) {
                byte[] answer = {};
                if (next.getString("action").equals("upload")) {
                    receivedRound = new TusUpload(server, new File(next.getString("path")), round, base).send(false);
                } else {
                    HttpURLConnection sent = post(next.getString("path"), next.getString("body"));
                    if (sent.getResponseCode() == 202) return waitOf(sent);
                    answer = answerOf(sent);
                }
                step();
                AtomicFiles.write(workspace.answer, answer);
                step();
            }
            return 0;
        } catch (JSONException error) {
            throw new IOException("phonograd-phone mask printed no request", error);
        }
    }

    /** What to do next, as the program says. */
    private JSONObject askProgram(String... options) throws IOException {
        List<String> line = new ArrayList<>(Arrays.asList(workspace.binary.getPath(), "mask", workspace.grid.getPath()));
        line.addAll(Arrays.asList("--round", Long.toString(round), "--phone", server.phone));
        line.addAll(Arrays.asList("--state", workspace.masking.getPath(), "--identity", workspace.identity.getPath()));
        line.addAll(Arrays.asList("--min-cohort", Integer.toString(masking.minCohort)));
        if (masking.certificate != null) line.addAll(Arrays.asList("--certificate", masking.certificate));
        if (masking.vendor != null) line.addAll(Arrays.asList("--vendor", masking.vendor));
        line.addAll(Arrays.asList(options));
        JSONObject said = Program.run(line);
        step();
        return said;
    }

    private HttpURLConnection post(String path, String body) throws IOException {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        HttpURLConnection request = server.request("POST", path);
        request.setRequestProperty("Content-Type", "application/json");
        request.setDoOutput(true);
        request.setFixedLengthStreamingMode(bytes.length);
        try (OutputStream out = request.getOutputStream()) {
            out.write(bytes);
        }
        return request;
    }

    private static long waitOf(HttpURLConnection request) throws IOException {
        long seconds = ServerConnection.retryAfter(request);
        if (seconds < 0) throw ServerConnection.stranger(request);
        return seconds;
    }

    /** A JSON object, whole: the program leaves the round after anything else. */
    private static byte[] answerOf(HttpURLConnection request) throws IOException {
        try {
            return ServerConnection.json(request, MAX_ANSWER_BYTES).toString().getBytes(StandardCharsets.UTF_8);
        } catch (RoundException refused) {
            boolean problem = ServerConnection.isType(request, "application/problem+json");
            if (!problem || refused.status != 410) throw refused;
            throw new RoundException(refused.getMessage(), refused.status, true, -1); // of an upload it may begin again
        }
    }
}
