package org.phonograd;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.json.JSONException;

/**
 * Makes model files: {@code phonograd-phone pull} and {@code quantize}. Each call starts a process and waits for its end, so
 * it is not for the main thread. A file is replaced once the new one is whole. Immutable and thread-safe.
 */
public final class ModelFiles {
    private final File binary;

    /**
     * Model files made by a program.
     *
     * @param binary the phone binary, executable ({@link Workspace#binary})
     */
    public ModelFiles(@NonNull File binary) {
        this.binary = binary;
    }

    /**
     * Writes the next model, from what {@code GET /v1/models/SHA256?base=...} sent.
     *
     * @param fetched the answer: links, or a whole model
     * @param base the model that the phone has, from which links lead; null if it has none
     * @param sha256 SHA-256 of the next model, in hexadecimal
     * @param out where to write it; may be {@code base}
     * @return how many links were applied; 0: a whole model
     * @throws ProgramException code 6 or 7: fetch the whole model, without a base
     * @throws IOException if the program does not start, or the thread is interrupted
     */
    public int pull(@NonNull File fetched, @Nullable File base, @NonNull String sha256, @NonNull File out)
            throws IOException {
        List<String> line = line("pull", fetched, "--sha256", sha256, "--out", out.getPath());
        if (base != null) line.addAll(Arrays.asList("--base", base.getPath()));
        try {
            return Program.run(line).getInt("links");
        } catch (JSONException error) {
            throw new IOException("phonograd-phone pull printed no links", error);
        }
    }

    /**
     * Writes prediction weights, in int8, for {@link Keyboard}.
     *
     * @param artifacts the model: a folder, as {@code phonograd export} wrote it
     * @param weights a later round's model; null: the folder's own weights
     * @param out where to write them
     * @throws ProgramException if the program fails
     * @throws IOException if the program does not start, or the thread is interrupted
     */
    public void quantize(@NonNull File artifacts, @Nullable File weights, @NonNull File out) throws IOException {
        List<String> line = line("quantize", artifacts, "--out", out.getPath());
        if (weights != null) line.addAll(Arrays.asList("--weights", weights.getPath()));
        Program.run(line);
    }

    private List<String> line(String command, File input, String... options) {
        List<String> line = new ArrayList<>(Arrays.asList(binary.getPath(), command, input.getPath()));
        line.addAll(Arrays.asList(options));
        return line;
    }
}
