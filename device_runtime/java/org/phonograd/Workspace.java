package org.phonograd;

import android.content.Context;
import java.io.File;

/**
 * Where training keeps its files: a folder of the app's own that no backup takes along. Immutable and thread-safe.
 *
 * <p>The app puts {@link #artifacts} and {@link #user} there, and takes {@link #update} away.
 */
public final class Workspace {
    /** The phone binary's name in the APK: Android extracts only what is named lib*.so. */
    public static final String BINARY = "libphonograd_phone.so";

    /** What Android extracted on installation; nothing in the app's data folder may be executed. */
    public final File binary;
    /** The model: a folder, as {@code phonograd export} wrote it. */
    public final File artifacts;
    /** The user's text, UTF-8, one message a line: a copy, the same from an epoch's first piece to its last. */
    public final File user;
    /** General text to rehearse, so that the model does not forget; used if it is there. */
    public final File rehearsal;
    /** The update, once an epoch is done. */
    public final File update;
    /** Of an epoch that is not done. */
    public final File state;

    /** The workspace of an app. */
    public Workspace(Context context) {
        this(new File(context.getApplicationInfo().nativeLibraryDir), new File(context.getNoBackupFilesDir(), "phonograd"));
    }

    private Workspace(File libraries, File folder) {
        binary = new File(libraries, BINARY);
        artifacts = new File(folder, "artifacts");
        user = new File(folder, "user.txt");
        rehearsal = new File(folder, "rehearsal.txt");
        update = new File(folder, "update.safetensors");
        state = new File(folder, "state");
    }

    /** Whether there is something to train on, and no update that waits to be taken away. */
    public boolean ready() {
        return new File(artifacts, "manifest.json").isFile() && user.isFile() && !update.exists();
    }

    /** The epoch over these files. */
    public TrainingCommand command() {
        TrainingCommand command = new TrainingCommand(binary, artifacts, user, update, state);
        return rehearsal.isFile() ? command.with("--rehearsal", rehearsal.getPath()) : command;
    }
}
