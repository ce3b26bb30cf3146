package org.phonograd;

import androidx.annotation.NonNull;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * The command line of one epoch: {@code phonograd-phone train}. Immutable and thread-safe.
 *
 * <p>The same command line resumes from the state folder; one with another model, text, learning rate, seed or precision is
 * refused with {@link Ending.Outcome#STATE_REFUSED}. How fast it runs may change: {@code --threads}, {@code --duty}, {@code --nice}.
 */
public final class TrainingCommand {
    private final List<String> arguments;

    /**
     * An epoch with the required options; {@link #with} adds others.
     *
     * @param binary the phone binary, executable ({@link Workspace#binary})
     * @param artifacts the artifacts folder
     * @param user the user's text, UTF-8, one message a line
     * @param update where to write the update, whole or not at all
     * @param state folder of the resumable state; made if missing, removed when the epoch is done
     */
    public TrainingCommand(@NonNull File binary, @NonNull File artifacts, @NonNull File user, @NonNull File update,
            @NonNull File state) {
        this(Arrays.asList(
                binary.getPath(), "train", artifacts.getPath(),
                "--user", user.getPath(), "--update", update.getPath(), "--state", state.getPath()));
    }

    private TrainingCommand(List<String> arguments) {
        this.arguments = Collections.unmodifiableList(arguments);
    }

    /**
     * This command with another option; {@code phonograd-phone train --help} lists them. {@code with("--duty", "0.5")} rests
     * half of the time, so that the phone stays cooler; {@code with("--nice", "10")} lets other apps go first.
     */
    @NonNull
    public TrainingCommand with(@NonNull String option, @NonNull String... values) {
        List<String> longer = new ArrayList<>(arguments);
        longer.add(option);
        longer.addAll(Arrays.asList(values));
        return new TrainingCommand(longer);
    }

    /**
     * This command for a phone in a round: its seed follows from the model, the round and the name.
     *
     * @param round the round's number, from {@code GET /v1/round}
     * @param phone the phone's name at the server
     */
    @NonNull
    public TrainingCommand inRound(long round, @NonNull String phone) {
        return with("--round", Long.toString(round), "--phone", phone);
    }

    /** The binary and its arguments, unmodifiable. */
    @NonNull
    public List<String> arguments() {
        return arguments;
    }

    /** The binary. */
    @NonNull
    public File binary() {
        return new File(arguments.get(0));
    }
}
