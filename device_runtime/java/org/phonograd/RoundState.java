package org.phonograd;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * How far this phone is in a round: one small file, replaced atomically. Not thread-safe.
 *
 * <p>The text is on disk while TRAINING only, and an update from the end of TRAINING to the end of SENDING. The program
 * keeps in {@link Workspace#masking} how far SENDING is in a masked round.
 */
final class RoundState {
    enum Stage {
        IDLE, // no round
        FETCHING, // the round is known; its model is not here yet
        READY, // the model is here
        TRAINING, // the text's copy is made, or being made, and trained on
        TRAINED, // the update is on disk
        SENDING // the server may have some of the update, or all
    }

    Stage stage = Stage.IDLE;
    /** The round, and SHA-256 of its model in hexadecimal. */
    long round;
    String base = "";
    /** The settings of a masked round, as the server says them; empty: the round is not masked. */
    String masked = "";
    /** What the server says of a round of dp-ftrl; empty: it is of none. */
    String run = "";
    /** Whether the round averages single steps. */
    boolean oneStep;
    /** Whether its model is the one in the artifacts folder, not {@link Workspace#model}. */
    boolean exported = true;
    /** Whether links did not lead to the model, so that all of it is fetched. */
    boolean whole;
    /** SHA-256 of the body that is being fetched; empty: none of it is here. */
    String etag = "";
    /** The last round that is over for this phone, sent or given up, and its model. */
    long doneRound;
    String doneBase = "";

    /** The state in a file; a new one if the file is missing or damaged. */
    static RoundState read(File file) throws IOException {
        RoundState state = new RoundState();
        if (!file.isFile()) return state;
        try {
            JSONObject json = new JSONObject(new String(Files.readAllBytes(file.toPath()), StandardCharsets.UTF_8));
            state.stage = Stage.valueOf(json.getString("stage"));
            state.round = json.getLong("round");
            state.base = json.getString("base");
            state.masked = json.getString("masked");
            state.run = json.getString("run");
            state.oneStep = json.getBoolean("one_step");
            state.exported = json.getBoolean("exported");
            state.whole = json.getBoolean("whole");
            state.etag = json.getString("etag");
            state.doneRound = json.getLong("done_round");
            state.doneBase = json.getString("done_base");
            return state;
        } catch (JSONException | IllegalArgumentException error) {
            return new RoundState();
        }
    }

    /** Writes the state; the file is the old one or the new one. */
    void write(File file) throws IOException {
        JSONObject json = new JSONObject();
        try {
            json.put("stage", stage.name()).put("round", round).put("base", base).put("one_step", oneStep);
            json.put("masked", masked).put("run", run).put("exported", exported).put("whole", whole).put("etag", etag);
            json.put("done_round", doneRound).put("done_base", doneBase);
        } catch (JSONException error) {
            throw new IllegalStateException(error); // it refuses NaN alone
        }
        AtomicFiles.write(file, json.toString().getBytes(StandardCharsets.UTF_8));
    }

    void join(OpenRound open) {
        stage = Stage.FETCHING;
        round = open.round;
        base = open.base;
        masked = open.masked;
        run = open.run;
        oneStep = open.oneStep;
        whole = false;
        etag = "";
    }
}
