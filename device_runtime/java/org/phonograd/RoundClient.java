package org.phonograd;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;
import org.phonograd.RoundState.Stage;

/**
 * A phone's part in the server's rounds: a place, the model, training, the update, the receipt. The app's jobs call it in
 * steps, and each says what comes next: {@link #network} whatever needs the network, {@link #trainingCommand} and
 * {@link #ended} around the training, which stays a process of its own.
 *
 * <p>A file of the workspace keeps its place, so a step that was cut off is repeated, and nothing is lost or done twice. The text's copy, {@link Workspace#user}, is made when training begins, and deleted once the update is on disk or the
 * round is over; {@link Workspace#update} once the server has answered. No decision depends on the clock.
 *
 * <p>In a masked round the update never leaves the phone: what does is masked by {@code phonograd-phone mask}, with the other
 * phones. That takes several steps of the network, each after the time that the server says.
 *
 * <p>Each job has a client of its own; not thread-safe but for {@link #cancel}. Of several clients of a workspace, also in
 * other processes, one takes a step at a time; the others' do nothing. {@link #network} blocks, the rest writes a file or two.
 */
@SuppressWarnings("try") // a lock is held, not used
public class RoundClient {
    /** Where the user's text comes from. */
    public interface Text {
        /** Writes all of it, UTF-8, one message a line. */
        void writeTo(@NonNull OutputStream out) throws IOException;
    }

    /** What to do next. */
    public enum Action {
        TRAIN, // and come to the network again after the time, in case the round ends first
        NETWORK, // after the time
        NOTHING // before the app has changed something: the server refuses this phone, or this version of the app
    }

    /** What a step leads to. Immutable. */
    public static final class Next {
        @NonNull public final Action action;
        /** When the network is to be used, at the earliest. */
        public final long afterSeconds;
        /** What stopped the step; null: nothing did. A {@link RoundException} is the server's; others may name files. */
        @Nullable public final IOException trouble;
        /** The round whose receipt the step brought for the update; 0: none. */
        public final long receivedRound;

        private Next(Action action, long afterSeconds, IOException trouble, long receivedRound) {
            this.action = action;
            this.afterSeconds = afterSeconds;
            this.trouble = trouble;
            this.receivedRound = receivedRound;
        }
    }

    private static final long AGAIN_SECONDS = 300; // after a connection that broke, or storage that is full
    private static final long NEXT_ROUND_SECONDS = 3600; // if the server does not say when
    private static final long HEADER_BYTES = 1 << 20; // by which files of the same tensors may differ
    private static final long STILL_OPEN_SECONDS = 6 * 3600; // does the round still wait for the training?

    private final Workspace workspace;
    private final ServerConnection server;
    private final String codec; // null: masked rounds alone
    private final PhoneMasking masking;
    private RoundState state; // valid while a StepLock is held
    private long receivedRound; // in this step

    /** A phone at a server, as below; in masked rounds with {@link PhoneMasking#PhoneMasking()}. */
    public RoundClient(@NonNull Workspace workspace, @NonNull ServerConnection server, @NonNull String codec) {
        this(workspace, server, codec, new PhoneMasking());
    }

    /**
     * A phone at a server.
     *
     * @param workspace with the exported model in {@link Workspace#artifacts}; all else in it is then this class's
     * @param codec how updates are written: one of {@code phonograd-phone train --codec}, such as rows-f32; null: this phone takes
     *     part in masked rounds alone
     * @param masking what it takes part with in masked rounds
     */
    public RoundClient(@NonNull Workspace workspace, @NonNull ServerConnection server, @Nullable String codec,
            @NonNull PhoneMasking masking) {
        this.workspace = workspace;
        this.server = server;
        this.codec = codec;
        this.masking = masking;
    }

    /**
     * Makes this phone one of a server's: unpacks the exported model unless one is there, and keeps the rest for
     * {@link ServerConnection#read}. Call it once, or again after a change of server, name or token.
     *
     * @param model a ZIP of the folder that {@code phonograd export} wrote, such as an asset of the app; the caller closes it
     * @throws IllegalArgumentException as {@link ServerConnection} does; nothing is written
     * @throws IOException if storage refuses, the ZIP is another, or a step is running; come again later
     */
    public static void enroll(@NonNull Workspace workspace, @NonNull InputStream model, @NonNull String server,
            @NonNull String phone, @Nullable String token) throws IOException {
        Files.createDirectories(workspace.lock.getParentFile().toPath());
        try (StepLock lock = new StepLock(workspace.lock)) {
            new ServerConnection(server, phone, token); // refuses what is wrong
            if (!new File(workspace.artifacts, "manifest.json").isFile()) Enrolment.unpack(model, workspace.artifacts);
            Enrolment.write(workspace.server, server, phone, token); // last: it says that the phone is enrolled
        }
    }

    /**
     * The phone's public key in masked rounds, in lower-case hexadecimal, which the vendor certifies with the phone's name. The
     * key is made at the first call or in the first masked round, and stays the workspace's. Starts a process: not for the main
     * thread.
     *
     * @throws IOException if storage refuses, the key is damaged, or another step is running; nothing is lost, come again later
     */
    @NonNull
    public String publicKey() throws IOException {
        try (StepLock lock = new StepLock(workspace.lock)) {
            return MaskedRound.identity(workspace);
        }
    }

    /**
     * Does all that needs the network now: sends the update, or continues the part in a masked round as far as the server lets
     * it, finds the next round, fetches its model. Returns when there is nothing left to do, or it cannot go on; throws nothing but
     * bugs.
     */
    @NonNull
    public Next network() {
        receivedRound = 0;
        try (StepLock lock = openStep()) {
            boolean trained = state.stage == Stage.TRAINED || state.stage == Stage.SENDING;
            Next refused = trained ? send() : null;
            return refused != null ? refused : prepare();
        } catch (RoundException refused) {
            long after = refused.retryAfterSeconds >= 0 ? refused.retryAfterSeconds : AGAIN_SECONDS;
            return next(refused.forGood ? Action.NOTHING : Action.NETWORK, after, refused);
        } catch (IOException error) {
            return next(Action.NETWORK, AGAIN_SECONDS, error);
        } catch (RuntimeException error) {
            if (!server.isCancelled()) throw error; // else it is Java's own, about a connection that was ended in use
            return next(Action.NETWORK, AGAIN_SECONDS, new IOException("cancelled", error));
        }
    }

    /** Ends what {@link #network} waits for, and its later requests; for {@code onStopJob}. The next step goes on. */
    public void cancel() {
        server.cancel();
    }

    /**
     * What to train with, the same until the round's update is made; null: nothing now, or another step is running. Makes the
     * text's copy.
     *
     * @param text the user's text; asked for once in a round
     * @throws IOException if the storage or the text refuses; nothing is lost, come again later
     */
    @Nullable
    public TrainingCommand trainingCommand(@NonNull Text text) throws IOException {
        try (StepLock lock = openStep()) {
            if (state.stage != Stage.READY && state.stage != Stage.TRAINING) return null;
            if (state.stage == Stage.READY) enter(Stage.TRAINING);
            if (!workspace.user.isFile()) AtomicFiles.write(workspace.user, text);
            step();
        }
        TrainingCommand command = workspace.commandFor(trainingOutput()).inRound(state.round, server.phone);
        command = state.masked.isEmpty() ? command.with("--codec", codec) : command.with("--masked", state.masked);
        if (!state.run.isEmpty()) {
            command = command.with("--run", state.run).with("--run-history", workspace.runHistory.getPath());
        }
        if (!state.exported) command = command.with("--weights", workspace.model.getPath());
        return state.oneStep ? command.with("--steps", "1") : command;
    }

    /** The training process has ended; if the app dies before it says so, {@link #network} sees the update. */
    @NonNull
    public Next ended(@NonNull Ending ending) {
        if (ending.outcome != Ending.Outcome.FINISHED && ending.outcome != Ending.Outcome.FAILED) {
            return next(Action.TRAIN, STILL_OPEN_SECONDS, null);
        }
        try (StepLock lock = openStep()) {
            if (state.stage == Stage.TRAINING) finish(); // without an update: it would fail again
            return next(Action.NETWORK, 0, null);
        } catch (IOException error) {
            return next(Action.NETWORK, AGAIN_SECONDS, error);
        }
    }

    /** Called before and after whatever changes the disk: where tests kill the process. */
    void step() {}

    private Next next(Action action, long afterSeconds, IOException trouble) {
        return new Next(action, afterSeconds, trouble, receivedRound);
    }

    private StepLock openStep() throws IOException {
        StepLock lock = new StepLock(workspace.lock);
        boolean settled = false;
        try {
            state = RoundState.read(workspace.round);
            settle();
            if (codec == null && state.masked.isEmpty()) leave(); // the app has changed its mind in mid-round
            settled = true;
            return lock;
        } finally {
            if (!settled) lock.close();
        }
    }

    private void enter(Stage stage) throws IOException {
        state.stage = stage;
        save();
    }

    private void save() throws IOException {
        step();
        state.write(workspace.round);
        step();
    }

    /** What training writes: an update, or a grid update, which is never sent. Two files, lest one is ever taken for the other. */
    private File trainingOutput() {
        return state.masked.isEmpty() ? workspace.update : workspace.grid;
    }

    /** Removes what the stage does not allow on disk, whatever was cut off before. */
    private void settle() throws IOException {
        if (state.stage == Stage.TRAINING && trainingOutput().isFile()) enter(Stage.TRAINED);
        boolean sending = state.stage == Stage.TRAINED || state.stage == Stage.SENDING;
        if (state.stage != Stage.TRAINING) {
            remove(workspace.user);
            remove(AtomicFiles.partial(workspace.user));
            remove(workspace.state);
            if (!sending) {
                remove(workspace.update);
                remove(workspace.grid);
                File[] masking = workspace.masking.listFiles(); // secrets of the round, and its masked update
                if (masking != null) for (File file : masking) if (!file.equals(workspace.history)) remove(file);
            }
        }
        if (state.stage != Stage.FETCHING) remove(workspace.fetched);
    }

    private void remove(File file) throws IOException {
        if (!file.exists()) return;
        step();
        AtomicFiles.remove(file);
        AtomicFiles.sync(file.getParentFile());
    }

    /** The round is over for this phone: sent, refused, or it cannot be trained. */
    private void finish() throws IOException {
        state.doneRound = state.round;
        state.doneBase = state.base;
        leave();
    }

    /** Without a round; what there was of one is removed. */
    private void leave() throws IOException {
        if (state.stage == Stage.IDLE) return;
        enter(Stage.IDLE);
        settle();
    }

    private Next prepare() throws IOException {
        OpenRound open = server.round();
        boolean ours = state.stage != Stage.IDLE && open.is(state.round, state.base) && open.masked.equals(state.masked);
        if (ours && state.stage == Stage.TRAINING) return next(Action.TRAIN, STILL_OPEN_SECONDS, null);
        if (!open.participate || open.is(state.doneRound, state.doneBase)) {
            leave();
            long after = open.retryAfterSeconds >= 0 ? open.retryAfterSeconds : NEXT_ROUND_SECONDS;
            String message = "round " + open.round + " has no place for this phone: " + open.reason;
            return next(Action.NETWORK, after, open.participate ? null : new RoundException(message, 200, false, after));
        }
        if (open.masked.isEmpty() && codec == null) {
            leave();
            String message = "round " + open.round + " is not masked; this phone takes part in masked rounds alone";
            throw new RoundException(message, 200, false, NEXT_ROUND_SECONDS);
        }
        if (!open.masked.isEmpty() && hasSent(open)) {
            leave();
            String message = "round " + open.round + " has a model of which this phone has sent a masked update; it waits for another";
            throw new RoundException(message, 200, false, NEXT_ROUND_SECONDS);
        }
        if (open.masked.isEmpty() && !open.codecs.contains(codec)) {
            leave();
            throw new RoundException("the server takes no updates of codec " + codec + "; choose another", 200, true, -1);
        }
        if (!ours) {
            state.join(open);
            save();
            settle();
        }
        if (state.stage == Stage.FETCHING) {
            fetch();
            enter(Stage.READY);
            settle();
        }
        return next(Action.TRAIN, STILL_OPEN_SECONDS, null);
    }

    /** Whether the program would refuse the round's model, after it was trained in vain. */
    private boolean hasSent(OpenRound open) {
        try {
            byte[] history = Files.readAllBytes(workspace.history.toPath());
            JSONObject json = new JSONObject(new String(history, StandardCharsets.UTF_8));
            boolean sent = false;
            JSONArray bases = json.getJSONArray("bases");
            for (int i = 0; i < bases.length(); i++) sent |= open.base.equals(bases.getString(i));
            return sent && json.getLong("last_round") != open.round;
        } catch (IOException | JSONException error) {
            return false; // the file is missing, or the program says what is wrong with it
        }
    }

    private void fetch() throws IOException {
        File exported = new File(workspace.artifacts, "weights.safetensors");
        File base = state.exported || !workspace.model.isFile() ? exported : workspace.model;
        if (has(exported)) {
            state.exported = true;
            return;
        }
        while (!has(workspace.model)) pull(base);
        state.exported = false;
    }

    /** Fetches the model or links to it, and makes the model of them. If links do not make it, all of it is fetched next. */
    private void pull(File base) throws IOException {
        String from = state.whole ? "" : "?base=" + AtomicFiles.sha256(base);
        String path = "/v1/models/" + state.base + from;
        long most = new File(workspace.artifacts, "weights.safetensors").length() + HEADER_BYTES;
        ModelDownload download = new ModelDownload(server, path, workspace.fetched, state.etag, most);
        if (!download.etag.isEmpty()) {
            if (!download.etag.equals(state.etag)) {
                state.etag = download.etag;
                save();
            }
            download.receive();
        }
        step();
        try {
            new ModelFiles(workspace.binary).pull(workspace.fetched, base, state.base, workspace.model);
        } catch (ProgramException error) {
            if (error.code != 6 && error.code != 7) throw error; // not of the bytes, but of storage or memory
            boolean links = !state.whole;
            state.whole = true;
            state.etag = "";
            save();
            if (!links) throw new RoundException("the model that came is not the one asked for", 200, false, NEXT_ROUND_SECONDS);
        }
    }

    private boolean has(File model) throws IOException {
        return model.isFile() && AtomicFiles.sha256(model).equals(state.base);
    }

    /** Sends the update, or continues the part in a masked round; null: it counts. */
    private Next send() throws IOException {
        boolean unsent = state.stage == Stage.TRAINED;
        if (unsent) enter(Stage.SENDING);
        if (trainingOutput().isFile()) { // else a power cut brought the stage before its end back
            try {
                long wait = state.masked.isEmpty() ? upload(unsent) : mask();
                if (wait > 0) return next(Action.NETWORK, wait, null);
            } catch (RoundException | ProgramException refused) {
                if (!isOver(refused)) throw refused;
                finish();
                return next(Action.NETWORK, AGAIN_SECONDS, refused);
            }
        }
        finish();
        return null;
    }

    private long upload(boolean unsent) throws IOException {
        receivedRound = new TusUpload(server, workspace.update, state.round, state.base).send(unsent);
        return 0;
    }

    /** Seconds after which to go on with the part in a masked round; 0: it is done. */
    private long mask() throws IOException {
        MaskedRound part = new MaskedRound(workspace, server, masking, state.round, state.base) {
            @Override
            void step() {
                RoundClient.this.step();
            }
        };
        try {
            return part.goOn();
        } finally {
            receivedRound = part.receivedRound;
        }
    }

    /** Whether a refusal is the end of the round for this phone, or the same may be sent later. */
    private boolean isOver(IOException error) throws IOException {
        if (error instanceof ProgramException) return !((ProgramException) error).outcome.again;
        RoundException refused = (RoundException) error;
        if (refused.status == 401 || refused.status == 403) return false; // of the phone
        if (refused.forGood) return true;
        boolean late = refused.status == 409 && refused.retryAfterSeconds >= 0;
        return late && (!state.masked.isEmpty() || server.round().round != state.round); // masked rounds go on without the late
    }
}
