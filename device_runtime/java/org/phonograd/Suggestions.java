package org.phonograd;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * A keyboard's suggestions: {@code phonograd-phone predict --requests}, which keeps the model open and the text's state. A call
 * waits for the answer, some milliseconds. Thread-safe; one thread at a time is served.
 */
public final class Suggestions implements Closeable {
    /** A suggested word. */
    public static final class Word {
        /** The word. */
        @NonNull public final String word;
        /** Its probability, from 0 to 1. */
        public final double probability;

        Word(String word, double probability) {
            this.word = word;
            this.probability = probability;
        }
    }

    private final Program program;

    /**
     * Opens the model; returns once it can answer.
     *
     * @param binary the phone binary, executable ({@link Workspace#binary})
     * @param artifacts the model: a folder, as {@code phonograd export} wrote it
     * @param weights a later round's model, or what {@link ModelFiles#quantize} wrote; null: the folder's own weights
     * @throws ProgramException if the program refuses the model
     * @throws IOException if the program does not start
     */
    public Suggestions(@NonNull File binary, @NonNull File artifacts, @Nullable File weights) throws IOException {
        List<String> line = new ArrayList<>(
                Arrays.asList(binary.getPath(), "predict", artifacts.getPath(), "--requests"));
        if (weights != null) line.addAll(Arrays.asList("--weights", weights.getPath()));
        program = new Program(line);
        try {
            program.event();
        } catch (IOException error) {
            program.close();
            throw error;
        }
    }

    /** Begins a new text; returns the words that may come first. Raises as {@link #suggest}. */
    @NonNull
    public List<Word> reset() throws IOException {
        return ask(true, "", "");
    }

    /**
     * The words that may come next, best first, at most 3.
     *
     * @param context the words written since the last call; a line feed ends a message
     * @param prefix the letters typed of the next word
     * @throws ProgramException if the program ended; open another
     */
    @NonNull
    public List<Word> suggest(@NonNull String context, @NonNull String prefix) throws IOException {
        return ask(false, context, prefix);
    }

    /** Ends the program. */
    @Override
    public void close() {
        program.close();
    }

    private synchronized List<Word> ask(boolean reset, String context, String prefix) throws IOException {
        try {
            program.send(new JSONObject().put("reset", reset).put("context", context).put("prefix", prefix));
            JSONArray found = program.event().getJSONArray("words");
            List<Word> words = new ArrayList<>();
            for (int at = 0; at < found.length(); at++) {
                JSONObject word = found.getJSONObject(at);
                words.add(new Word(word.getString("word"), word.getDouble("probability")));
            }
            return Collections.unmodifiableList(words);
        } catch (JSONException error) {
            throw new IOException("phonograd-phone predict printed no suggestions", error);
        }
    }
}
