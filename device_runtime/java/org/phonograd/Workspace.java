package org.phonograd;

import android.content.Context;
import androidx.annotation.NonNull;
import java.io.File;

/**
 * The files of training: a folder of the app that is excluded from backups. Immutable and thread-safe.
 *
 * <p>The app writes {@link #artifacts}, or has {@link RoundClient#enroll} do so. It also writes {@link #user} and removes {@link #update}, unless {@link RoundClient}
 * does both.
 */
public final class Workspace {
    /** The phone binary's name in the APK: Android extracts only files named lib*.so. */
    @NonNull public static final String BINARY = "libphonograd_phone.so";

    /** The binary that Android extracted; apps may not execute files in their data folder. */
    @NonNull public final File binary;
    /** The model: a folder, as {@code phonograd export} wrote it. */
    @NonNull public final File artifacts;
    /** The user's text, UTF-8, one message per line: a copy that does not change during an epoch. */
    @NonNull public final File user;
    /** General text for rehearsal, so that the model does not forget; used if it exists. */
    @NonNull public final File rehearsal;
    /** The update, once an epoch is done. */
    @NonNull public final File update;
    /** The state of an unfinished epoch. */
    @NonNull public final File state;
    /** The last model that {@link RoundClient} fetched; until then rounds train the one in {@link #artifacts}. */
    @NonNull public final File model;

    /** Who the phone is, by {@link RoundClient#enroll}; what {@link TextCollector} keeps. */
    final File server, recent;
    /** RoundClient's own: its place in the round, the lock of a step, and the part of a model that has come. */
    final File round, lock, fetched;
    /** The rounds of dp-ftrl that this phone took part in, as the program keeps them. */
    final File runHistory;
    /** In masked rounds: what training wrote, which stays on the phone; the phone's key; the program's folder. */
    final File grid, identity, masking;
    /** In that folder: the server's last answer, and what the program remembers of rounds. */
    final File answer, history;

    /** The workspace of an app. */
    public Workspace(@NonNull Context context) {
        this(new File(context.getApplicationInfo().nativeLibraryDir), new File(context.getNoBackupFilesDir(), "phonograd"));
    }

    Workspace(File libraries, File folder) {
        binary = new File(libraries, BINARY);
        artifacts = new File(folder, "artifacts");
        user = new File(folder, "user.txt");
        rehearsal = new File(folder, "rehearsal.txt");
        update = new File(folder, "update.safetensors");
        state = new File(folder, "state");
        model = new File(folder, "model.safetensors");
        server = new File(folder, "server.json");
        recent = new File(folder, "recent.txt");
        round = new File(folder, "round.json");
        lock = new File(folder, "round.lock");
        fetched = new File(folder, "model.fetched");
        runHistory = new File(folder, "runs.json");
        grid = new File(folder, "grid.safetensors");
        identity = new File(folder, "identity.key");
        masking = new File(folder, "masking");
        answer = new File(masking, "answer.json");
        history = new File(masking, "history.json");
    }

    /** Whether there is something to train on, and the previous update has been removed. */
    public boolean ready() {
        return new File(artifacts, "manifest.json").isFile() && user.isFile() && !update.exists();
    }

    /** The command that trains an epoch on these files. */
    @NonNull
    public TrainingCommand command() {
        return commandFor(update);
    }

    TrainingCommand commandFor(File out) {
        TrainingCommand command = new TrainingCommand(binary, artifacts, user, out, state);
        return rehearsal.isFile() ? command.with("--rehearsal", rehearsal.getPath()) : command;
    }
}
