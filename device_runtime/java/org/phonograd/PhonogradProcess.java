package org.phonograd;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.BufferedInputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.json.JSONException;

/**
 * A training process. Thread-safe.
 *
 * <p>It uses two threads while the process runs, a third during cancellation, and none afterwards. It logs nothing. If
 * the app dies, Android ends the process too; the same command resumes from the saved state.
 */
public final class PhonogradProcess {
    /** How many bytes of the end of stderr are kept. */
    public static final int MAX_MESSAGE_BYTES = 4096;
    /** Longer lines are not events; the report of an epoch of 10,000 steps has half this length. */
    public static final int MAX_LINE_BYTES = 1 << 20;
    /** Seconds from SIGTERM to the kill: enough for the longest step on a slow phone and a save. */
    public static final long GRACE_SECONDS = 30;

    // Process.destroy() also closes our ends of the pipes, so the next event that the process prints would end it (SIGPIPE)
    // before it saves. So the signal is sent by process id, which Java does not know before Android 14: the shell prints
    // its own id and then becomes the process.
    private static final String PRINT_PID_AND_EXEC = "echo $$; exec \"$0\" \"$@\"";

    private final Process process;
    private final int pid;
    private final TrainingListener listener;
    private final long graceSeconds;
    private final LineReader lines;
    private final Thread events = thread("events", new Runnable() {
        @Override
        public void run() {
            readEvents();
        }
    });
    private final Thread messages = thread("messages", new Runnable() {
        @Override
        public void run() {
            readMessages();
        }
    });
    private final StringBuilder message = new StringBuilder(); // one char per byte; owned by thread messages until it ends
    private Thread canceller; // guarded by this
    private boolean over; // guarded by this
    private volatile Ending ending;

    private PhonogradProcess(Process process, LineReader lines, int pid, TrainingListener listener, long graceSeconds) {
        this.process = process;
        this.lines = lines;
        this.pid = pid;
        this.listener = listener;
        this.graceSeconds = graceSeconds;
    }

    /**
     * Starts training. Returns within milliseconds, before the model is loaded.
     *
     * @param command what to run
     * @param listener receives all events, on a thread of this process
     * @throws FileNotFoundException if the binary does not exist or may not be executed
     * @throws IOException if no process can be started
     */
    @NonNull
    public static PhonogradProcess start(@NonNull TrainingCommand command, @NonNull TrainingListener listener)
            throws IOException {
        return start(command, listener, GRACE_SECONDS);
    }

    /** Starts training, with the seconds from {@link #cancel} to the kill. */
    @NonNull
    public static PhonogradProcess start(@NonNull TrainingCommand command, @NonNull TrainingListener listener,
            long graceSeconds) throws IOException {
        File binary = command.binary();
        Program.requireExecutable(binary);
        List<String> line = new ArrayList<>(Arrays.asList("sh", "-c", PRINT_PID_AND_EXEC));
        line.addAll(command.arguments());
        Process process = new ProcessBuilder(line).start();
        LineReader lines = new LineReader(new BufferedInputStream(process.getInputStream()), MAX_LINE_BYTES);
        try {
            process.getOutputStream().close();
            int pid = Integer.parseInt(String.valueOf(lines.next()));
            PhonogradProcess started = new PhonogradProcess(process, lines, pid, listener, graceSeconds);
            started.messages.start();
            started.events.start();
            return started;
        } catch (IOException | NumberFormatException error) {
            process.destroyForcibly();
            throw new IOException(binary + ": the shell did not start it", error);
        }
    }

    /**
     * Asks the process to save its state and end after the current step; kills it after the grace period. Returns at
     * once; {@link TrainingListener#onEnded} follows. Does nothing the second time, or if the process has ended.
     */
    public synchronized void cancel() {
        if (canceller != null || over) return;
        canceller = thread("cancel", new Runnable() {
            @Override
            public void run() {
                terminate();
            }
        });
        canceller.start();
    }

    /** Waits for the end and returns it; null after the timeout. The listener must not call it. */
    @Nullable
    public Ending await(long time, @NonNull TimeUnit unit) throws InterruptedException {
        unit.timedJoin(events, time);
        return ending;
    }

    // These classes use no lambdas: Android cannot run them without d8's desugaring.
    private static Thread thread(String name, Runnable work) {
        return new Thread(work, "phonograd-" + name);
    }

    private void terminate() {
        try {
            if (process.isAlive()) {
                Process signal = new ProcessBuilder("sh", "-c", "kill -TERM " + pid).redirectErrorStream(true).start();
                signal.getOutputStream().close();
                signal.getInputStream().close();
            }
            if (process.waitFor(graceSeconds, TimeUnit.SECONDS)) return;
        } catch (IOException | InterruptedException error) {
            // No signal could be sent, or the wait was interrupted: kill it.
        }
        process.destroyForcibly();
    }

    private void readEvents() {
        TrainingListener.Report report = null;
        RuntimeException bug = null;
        int stray = 0;
        try {
            for (String line = lines.next(); line != null; line = lines.next()) {
                try {
                    TrainingListener.Report parsed = TrainingEvents.dispatch(line, listener);
                    if (parsed != null) report = parsed;
                } catch (JSONException error) {
                    stray++;
                }
            }
        } catch (IOException error) {
            // The pipe is closed by a kill.
        } catch (RuntimeException error) {
            bug = error;
            process.destroyForcibly();
        }
        end(report, stray);
        if (bug != null) throw bug;
    }

    private void end(TrainingListener.Report report, int stray) {
        int code = waitForEnd();
        join(messages);
        Thread cancelling;
        synchronized (this) {
            over = true;
            cancelling = canceller;
        }
        if (cancelling != null) join(cancelling);
        byte[] stderr = message.toString().getBytes(StandardCharsets.ISO_8859_1);
        ending = new Ending(code, new String(stderr, StandardCharsets.UTF_8).trim(), report, stray);
        listener.onEnded(ending);
    }

    private void readMessages() {
        byte[] buffer = new byte[MAX_MESSAGE_BYTES];
        try (InputStream in = process.getErrorStream()) {
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                message.append(new String(buffer, 0, count, StandardCharsets.ISO_8859_1));
                message.delete(0, Math.max(0, message.length() - MAX_MESSAGE_BYTES));
            }
        } catch (IOException error) {
            // The pipe is closed by a kill.
        }
    }

    // Nothing interrupts these threads; if something does, no process may be left behind.
    private int waitForEnd() {
        while (true) {
            try {
                return process.waitFor();
            } catch (InterruptedException error) {
                process.destroyForcibly();
            }
        }
    }

    private void join(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException error) {
            process.destroyForcibly();
        }
    }
}
