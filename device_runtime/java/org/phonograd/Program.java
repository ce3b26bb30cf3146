package org.phonograd;

import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import org.json.JSONException;
import org.json.JSONObject;

/** The program, answering with events. Not thread-safe. */
final class Program implements Closeable {
    private final Process process;
    private final LineReader lines;

    /** Starts the binary, which the command line begins with. */
    Program(List<String> line) throws IOException {
        requireExecutable(new File(line.get(0)));
        process = new ProcessBuilder(line).start();
        lines = new LineReader(new BufferedInputStream(process.getInputStream()), PhonogradProcess.MAX_LINE_BYTES);
    }

    static void requireExecutable(File binary) throws FileNotFoundException {
        if (binary.canExecute()) return;
        throw new FileNotFoundException(binary + ": missing or not executable; it ships as "
                + "lib/arm64-v8a/" + Workspace.BINARY + " (in the emulator, lib/x86_64/) in an APK with android:extractNativeLibs=\"true\"");
    }

    /** The one event of a command line. ProgramException: it failed. */
    static JSONObject run(List<String> line) throws IOException {
        try (Program program = new Program(line)) {
            JSONObject event = program.event();
            program.await();
            return event;
        }
    }

    /** The program's next event. ProgramException: it ended instead, or printed something else. */
    JSONObject event() throws IOException {
        String line = lines.next();
        if (line == null) throw failure();
        try {
            return new JSONObject(line);
        } catch (JSONException error) {
            throw new IOException("phonograd-phone printed no event", error);
        }
    }

    /** Waits for its end. ProgramException: it failed. */
    void await() throws IOException {
        if (lines.next() != null) throw new IOException("phonograd-phone printed more than one event");
        if (waitForEnd() != 0) throw failure();
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }

    private ProgramException failure() throws IOException {
        LineReader messages = new LineReader(process.getErrorStream(), PhonogradProcess.MAX_MESSAGE_BYTES);
        String last = "";
        for (String line = messages.next(); line != null; line = messages.next()) last = line;
        return new ProgramException(waitForEnd(), last);
    }

    private int waitForEnd() throws IOException {
        try {
            return process.waitFor();
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
            throw new IOException("interrupted", error);
        }
    }
}
