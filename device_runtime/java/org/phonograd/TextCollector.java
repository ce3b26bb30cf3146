package org.phonograd;

import androidx.annotation.NonNull;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;

/**
 * What the user typed last, for rounds to train on: a file of the workspace that keeps the newest messages. One thread adds and
 * forgets, any reads. Give it no text of passwords, nor of fields with IME_FLAG_NO_PERSONALIZED_LEARNING.
 */
public final class TextCollector implements RoundClient.Text {
    /** Bytes of text that are kept. */
    public static final int MAX_BYTES = 20 << 10;

    private final File server, recent;

    /** The text of a workspace. */
    public TextCollector(@NonNull Workspace workspace) {
        server = workspace.server;
        recent = workspace.recent;
    }

    /**
     * Adds messages, each a whole line, and drops the oldest beyond {@link #MAX_BYTES}. Keeps nothing before
     * {@link RoundClient#enroll}, or if the last line is longer.
     */
    public void add(@NonNull String lines) throws IOException {
        if (lines.isEmpty() || !server.isFile()) return;
        String before = recent.isFile() ? new String(Files.readAllBytes(recent.toPath()), StandardCharsets.UTF_8) : "";
        byte[] all = (before + lines).getBytes(StandardCharsets.UTF_8);
        int from = Math.max(0, all.length - MAX_BYTES);
        while (from > 0 && from < all.length && all[from - 1] != '\n') from++;
        if (from < all.length) AtomicFiles.write(recent, Arrays.copyOfRange(all, from, all.length));
    }

    /** Deletes all of it. */
    public void forget() throws IOException {
        AtomicFiles.remove(recent);
        AtomicFiles.remove(AtomicFiles.partial(recent));
    }

    @Override
    public void writeTo(@NonNull OutputStream out) throws IOException {
        Files.copy(recent.toPath(), out);
    }
}
