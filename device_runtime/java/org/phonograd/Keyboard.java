package org.phonograd;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * A keyboard's suggestions inside the app's process, by the native library {@code libphonograd.so}: the model's, and the user's
 * own words if there is a file for them.
 *
 * <p>Thread-safe: one lock, so a call waits for the one in progress. {@link #open} and {@link #save} read and write files:
 * keep them off the main thread. The others take a millisecond or two for each word once the model's pages are in memory, and
 * longer before: a keyboard that must not stutter calls all of them from one background thread. After {@link #close} every call
 * throws IllegalStateException.
 *
 * <p>Text is split into words as the text to train on is. It must not contain U+0000 (IllegalArgumentException). An unpaired
 * surrogate counts as a question mark.
 */
public final class Keyboard implements AutoCloseable {
    /** A suggested word. */
    public static final class Suggestion {
        /** The word. */
        @NonNull public final String word;
        /** The word's probability, from 0 to 1. */
        public final double probability;

        Suggestion(String word, double probability) {
            this.word = word;
            this.probability = probability;
        }
    }

    /** What the shift key asks of the suggestions. Whatever it asks, capitals that were typed stay. */
    public enum Shift {
        /** A capital at a sentence's start, else the word's usual form. */
        BY_PLACE,
        /** The usual form everywhere. */
        NONE,
        /** A first capital. */
        FIRST,
        /** Capitals alone. */
        ALL
    }

    /** What to suggest; {@code new Wish()} is words that begin with what was typed, never marks. */
    public static final class Wish {
        /** The state of the shift key. */
        @NonNull public Shift shift = Shift.BY_PLACE;
        /** Emoji too. */
        public boolean emoji;
        /**
         * Also words whose beginning is one slip away from what was typed: a neighbouring key, two letters swapped, one
         * missing, one doubled. From two letters on.
         */
        public boolean slips;
        /** Nats that a slip takes from the logarithm of a word's probability; 0: 6. */
        public double slipCost;
        /** Keys side by side, in pairs: "qw we qa"; null: those of QWERTY. */
        @Nullable public String neighbours;
    }

    /** A word that the user wrote. */
    public static final class PersonalWord {
        /** The word. */
        @NonNull public final String word;
        /** How often it was written, at most: rare words fade when the store is full. */
        public final long count;

        PersonalWord(String word, long count) {
            this.word = word;
            this.count = count;
        }
    }

    // A word is too little work to share.
    private static final int THREADS = 1;

    private final boolean personal;
    private long handle; // of the native keyboard; 0: closed

    private Keyboard(long handle, boolean personal) {
        this.handle = handle;
        this.personal = personal;
    }

    /**
     * Opens a model, at the start of a text. Not on the main thread.
     *
     * @param artifacts the model: a folder, as {@code phonograd export} wrote it
     * @param weights a later round's model, or what {@link ModelFiles#quantize} wrote; null: the folder's own. It must not be
     *     written to while the keyboard is open; a new file in its place is fine
     * @param personal the file of the user's own words, which need not exist; null: none. Several processes may have it:
     *     each {@link #save} merges them. It says what the user writes: in {@code getNoBackupFilesDir()}, which no backup has
     * @throws ProgramException if the library refuses a file; {@link Ending.Outcome#STATE_REFUSED}: `personal` is damaged,
     *     delete it and begin again
     * @throws IOException if the app has no library for this phone
     */
    @NonNull
    public static Keyboard open(@NonNull File artifacts, @Nullable File weights, @Nullable File personal)
            throws IOException {
        try {
            System.loadLibrary("phonograd");
        } catch (UnsatisfiedLinkError error) {
            throw new IOException("libphonograd.so: not in this app for this phone's CPU; it ships for 64-bit ARM", error);
        }
        byte[] folder = path(artifacts), model = path(weights), words = path(personal);
        Keyboard keyboard = new Keyboard(create(), personal != null);
        if (keyboard.handle == 0) throw new OutOfMemoryError();
        try {
            check(open(keyboard.handle, folder, model, words, THREADS));
            return keyboard;
        } catch (IOException error) {
            keyboard.close();
            throw error;
        }
    }

    /** Begins a new text: another field or conversation. Nothing before it can be corrected. */
    public synchronized void reset() throws ProgramException {
        check(reset(openHandle()));
    }

    /**
     * Continues the text.
     *
     * @param text whole words, usually the one just written; a line feed ends a message
     * @throws ProgramException if the weights were changed; the text is where it was
     */
    public synchronized void feed(@NonNull String text) throws ProgramException {
        check(feed(openHandle(), bytes(text), false));
    }

    /**
     * Continues the text as {@link #feed} does, and learns it: words that the user wrote. Never what stands in password
     * fields or in those with {@code IME_FLAG_NO_PERSONALIZED_LEARNING}. What is learned is not taken back by {@link
     * #correct}: learn a word once it is unlikely to be corrected. Pieces with a digit or an @ are learned in the third message that has them.
     */
    public synchronized void learn(@NonNull String text) throws ProgramException {
        check(feed(withWords(), bytes(text), true));
    }

    /**
     * Takes back the last {@link #feed} or {@link #learn}, because its words were deleted or replaced. The suggestions are those from
     * before it, to the bit.
     *
     * @return false if it can't: the last 16 are kept. Then {@link #reset}, and feed what the text is now
     */
    public synchronized boolean correct() throws ProgramException {
        return requireCount(correct(openHandle())) == 1;
    }

    /**
     * Never suggests these words again, whoever has them and in any case, in place of those of the last call.
     *
     * @throws ProgramException if one is more than a word
     */
    public synchronized void block(@NonNull List<String> words) throws ProgramException {
        check(block(openHandle(), bytes(String.join("\n", words))));
    }

    /** The words that may come next, best first: {@link #suggest(String, int, Wish)} with {@code new Wish()}. */
    @NonNull
    public synchronized List<Suggestion> suggest(@NonNull String prefix, int most) throws ProgramException {
        return suggest(prefix, most, new Wish());
    }

    /**
     * The words that may come next, best first, as they are written there.
     *
     * @param prefix the letters typed of the next word, "" for none
     * @param most how many words at most, from 1
     * @throws ProgramException if the weights were changed, or are not finite
     */
    @NonNull
    public synchronized List<Suggestion> suggest(@NonNull String prefix, int most, @NonNull Wish wish)
            throws ProgramException {
        if (most < 1) throw new IllegalArgumentException("most: at least 1 expected, found " + most);
        double[] probabilities = new double[most];
        byte[] neighbours = wish.neighbours == null ? null : bytes(wish.neighbours);
        int shift = wish.shift.ordinal();
        int count =
                requireCount(
                        suggest(openHandle(), bytes(prefix), shift, wish.emoji, wish.slips, wish.slipCost, neighbours,
                                probabilities));
        String[] found = text(result(handle)).split("\n");
        List<Suggestion> words = new ArrayList<>(count);
        for (int at = 0; at < count; at++) words.add(new Suggestion(found[at], probabilities[at]));
        return Collections.unmodifiableList(words);
    }

    /**
     * The logarithms of the probabilities that words are next, for a keyboard's own decoder; of the first token where a
     * candidate has several, and negative infinity for words that neither the model nor the user knows.
     *
     * @param words at most 64, none empty or with a line feed
     * @throws ProgramException for more words, or as {@link #suggest}
     */
    @NonNull
    public synchronized double[] scores(@NonNull List<String> words) throws ProgramException {
        for (String word : words) {
            if (word.isEmpty() || word.indexOf('\n') >= 0) throw new IllegalArgumentException("a word expected, found " + word);
        }
        double[] scores = new double[words.size()];
        check(scores(openHandle(), bytes(String.join("\n", words)), scores));
        return scores;
    }

    /** What was learned, the most frequent words first. */
    @NonNull
    public synchronized List<PersonalWord> words() throws ProgramException {
        try {
            JSONArray found = listOf("words");
            List<PersonalWord> words = new ArrayList<>(found.length());
            for (int at = 0; at < found.length(); at++) {
                JSONObject word = found.getJSONObject(at);
                words.add(new PersonalWord(word.getString("word"), word.getLong("count")));
            }
            return Collections.unmodifiableList(words);
        } catch (JSONException error) {
            throw new AssertionError("the library's list is no list", error);
        }
    }

    /** The words that are never learned, until {@link #allow}. */
    @NonNull
    public synchronized List<String> vetoed() throws ProgramException {
        try {
            JSONArray found = listOf("vetoed");
            List<String> words = new ArrayList<>(found.length());
            for (int at = 0; at < found.length(); at++) words.add(found.getString(at));
            return Collections.unmodifiableList(words);
        } catch (JSONException error) {
            throw new AssertionError("the library's list is no list", error);
        }
    }

    /** Deletes a word and what followed it; it may be learned again. Returns whether it was there. */
    public synchronized boolean delete(@NonNull String word) throws ProgramException {
        return requireCount(remove(withWords(), bytes(word))) == 1;
    }

    /** Deletes a word, and never learns it again until {@link #allow}. ProgramException: more than 4,096 words. */
    public synchronized void veto(@NonNull String word) throws ProgramException {
        check(veto(withWords(), bytes(word)));
    }

    /** Takes a veto back: the word is learned when it is written again. Returns whether there was one. */
    public synchronized boolean allow(@NonNull String word) throws ProgramException {
        return requireCount(allow(withWords(), bytes(word))) == 1;
    }

    /** Deletes all words and vetoes, in the file too. Not on the main thread. */
    public synchronized void forget() throws ProgramException {
        check(forget(withWords()));
        check(save(handle));
    }

    /**
     * Writes the user's words to their file, atomically, and takes over what other processes saved. {@link #close} does not.
     * Not on the main thread.
     */
    public synchronized void save() throws ProgramException {
        check(save(withWords()));
    }

    /** Frees the model. Does nothing the second time. */
    @Override
    public synchronized void close() {
        long closed = handle;
        handle = 0;
        if (closed != 0) destroy(closed);
    }

    private long openHandle() {
        if (handle == 0) throw new IllegalStateException("the keyboard is closed; open another");
        return handle;
    }

    private long withWords() {
        long open = openHandle();
        if (!personal) throw new IllegalStateException("the keyboard was opened without a file of personal words");
        return open;
    }

    private JSONArray listOf(String name) throws ProgramException, JSONException {
        check(list(withWords()));
        return new JSONObject(text(result(handle))).getJSONArray(name);
    }

    private static byte[] path(File file) {
        return file == null ? null : bytes(file.getPath());
    }

    private static byte[] bytes(String text) {
        if (text.indexOf(0) >= 0) throw new IllegalArgumentException("a text without U+0000 expected, found one with it");
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    // The message is the calling thread's.
    private static void check(int status) throws ProgramException {
        if (status != 0) throw new ProgramException(status, text(message()));
    }

    private static int requireCount(int count) throws ProgramException {
        if (count < 0) check(-count);
        return count;
    }

    // capi/keyboard_jni.cpp
    private static native long create();

    private static native void destroy(long handle);

    private static native byte[] message();

    private static native byte[] result(long handle);

    private static native int open(long handle, byte[] folder, byte[] weights, byte[] personal, int threads);

    private static native int reset(long handle);

    private static native int feed(long handle, byte[] text, boolean learn);

    private static native int correct(long handle);

    private static native int suggest(
            long handle, byte[] prefix, int shift, boolean emoji, boolean slips, double slipCost, byte[] neighbours,
            double[] probabilities);

    private static native int block(long handle, byte[] words);

    private static native int scores(long handle, byte[] words, double[] scores);

    private static native int list(long handle);

    private static native int remove(long handle, byte[] word);

    private static native int veto(long handle, byte[] word);

    private static native int allow(long handle, byte[] word);

    private static native int forget(long handle);

    private static native int save(long handle);
}
