package org.phonograd;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * A keyboard's suggestions inside the app's process, by the native library {@code libphonograd.so}; {@link Suggestions} gives
 * the same from a process of its own.
 *
 * <p>Thread-safe: one lock, so a call waits for the one in progress. {@link #open} reads files: keep it off the main thread.
 * The others take a millisecond or two once the model's pages are in memory, and longer before: a keyboard that must not
 * stutter calls them from one background thread. After {@link #close} every call throws IllegalStateException.
 *
 * <p>Text is split into words as the text to train on is. Of no text may U+0000 be part (IllegalArgumentException). An unpaired
 * surrogate counts as a question mark.
 */
public final class Keyboard implements AutoCloseable {
    // The work of a word is too little to share.
    private static final int THREADS = 1;

    private long handle; // of the native keyboard; 0: closed

    private Keyboard(long handle) {
        this.handle = handle;
    }

    /**
     * Opens a model, at the start of a text. Not on the main thread.
     *
     * @param artifacts the model: a folder, as {@code phonograd export} wrote it
     * @param weights a later round's model, or what {@link ModelFiles#quantize} wrote; null: the folder's own. It must not be
     *     written to while the keyboard is open; a new file in its place is fine
     * @throws ProgramException if the library refuses a file
     * @throws IOException if the app has no library for this phone
     */
    public static Keyboard open(File artifacts, File weights) throws IOException {
        try {
            System.loadLibrary("phonograd");
        } catch (UnsatisfiedLinkError error) {
            throw new IOException("libphonograd.so: not in this app for this phone's CPU; it ships for 64-bit ARM", error);
        }
        byte[] folder = bytes(artifacts.getPath()), file = weights == null ? null : bytes(weights.getPath());
        Keyboard keyboard = new Keyboard(create());
        if (keyboard.handle == 0) throw new OutOfMemoryError();
        try {
            check(open(keyboard.handle, folder, file, THREADS));
            return keyboard;
        } catch (IOException error) {
            keyboard.close();
            throw error;
        }
    }

    /** Begins a new text: another field or conversation. Nothing before it can be corrected. */
    public synchronized void reset() throws ProgramException {
        check(reset(opened()));
    }

    /**
     * Continues the text.
     *
     * @param text whole words, usually the one just written; a line feed ends a message
     * @throws ProgramException if the weights were changed; the text is where it was
     */
    public synchronized void feed(String text) throws ProgramException {
        check(feed(opened(), bytes(text)));
    }

    /**
     * Takes back the last {@link #feed}, because its words were deleted or replaced. The suggestions are those from
     * before it, to the bit.
     *
     * @return false if it can't: the last 16 are kept. Then {@link #reset}, and feed what the text is now
     */
    public synchronized boolean correct() throws ProgramException {
        return counted(correct(opened())) == 1;
    }

    /**
     * The words that may come next, best first.
     *
     * @param prefix the letters typed of the next word, "" for none
     * @param most how many words at most, from 1
     * @throws ProgramException if the weights were changed, or are not finite
     */
    public synchronized List<Suggestions.Word> suggest(String prefix, int most) throws ProgramException {
        if (most < 1) throw new IllegalArgumentException("most: at least 1 expected, found " + most);
        double[] probabilities = new double[most];
        int count = counted(suggest(opened(), bytes(prefix), probabilities));
        String[] found = text(result(handle)).split("\n");
        List<Suggestions.Word> words = new ArrayList<>(count);
        for (int at = 0; at < count; at++) words.add(new Suggestions.Word(found[at], probabilities[at]));
        return Collections.unmodifiableList(words);
    }

    /** Frees the model. Does nothing the second time. */
    @Override
    public synchronized void close() {
        long closed = handle;
        handle = 0;
        if (closed != 0) destroy(closed);
    }

    private long opened() {
        if (handle == 0) throw new IllegalStateException("the keyboard is closed; open another");
        return handle;
    }

    private static byte[] bytes(String text) {
        if (text.indexOf(0) >= 0) throw new IllegalArgumentException("a text without U+0000 expected, found one with it");
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    // Of the thread that made the call.
    private static void check(int status) throws ProgramException {
        if (status != 0) throw new ProgramException(status, text(message()));
    }

    private static int counted(int count) throws ProgramException {
        if (count < 0) check(-count);
        return count;
    }

    // capi/keyboard_jni.cpp
    private static native long create();

    private static native void destroy(long handle);

    private static native byte[] message();

    private static native byte[] result(long handle);

    private static native int open(long handle, byte[] folder, byte[] weights, int threads);

    private static native int reset(long handle);

    private static native int feed(long handle, byte[] text);

    private static native int correct(long handle);

    private static native int suggest(long handle, byte[] prefix, double[] probabilities);
}
