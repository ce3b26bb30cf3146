package org.phonograd;

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
 * A training process: started, heard, cancelled. Thread-safe.
 *
 * <p>It has two threads while the process runs, a third while it is being cancelled, and none afterwards. Nothing is
 * logged here. If the app dies, Android ends the process with it; what was saved is resumed by the same command.
 */
public final class PhonogradProcess {
    /** Of what the process said on stderr, so much is kept, the end. */
    public static final int MAX_MESSAGE_BYTES = 4096;
    /** A longer line is no event; the report of an epoch of 10,000 steps is half as long. */
    public static final int MAX_LINE_BYTES = 1 << 20;
    /** From the polite signal to the kill: the longest step of a slow phone, and a save. */
    public static final long GRACE_SECONDS = 30;

    // Process.destroy() closes our ends of the pipes as it signals, so that the next event the process prints would end it
    // before it saved. So the signal is sent by its number, which Java does not tell before Android 14: the shell says
    // its own and becomes the process.
    private static final String NUMBER_THEN_BECOME = "echo $$; exec \"$0\" \"$@\"";

    private final Process process;
    private final int pid;
    private final TrainingListener listener;
    private final long graceSeconds;
    private final LineReader lines;
    private final Thread events = thread("events", new Runnable() {
        @Override
        public void run() {
            hear();
        }
    });
    private final Thread messages = thread("messages", new Runnable() {
        @Override
        public void run() {
            hearMessages();
        }
    });
    private final StringBuilder message = new StringBuilder(); // one char a byte; of thread messages until it ends
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
     * Starts training. Takes milliseconds: it returns before the model is loaded.
     *
     * @param command what to run
     * @param listener hears all that follows, on a thread of this process
     * @throws FileNotFoundException if the binary is not there or may not be executed
     * @throws IOException if no process can be started
     */
    public static PhonogradProcess start(TrainingCommand command, TrainingListener listener) throws IOException {
        return start(command, listener, GRACE_SECONDS);
    }

    /** As above, with the seconds from {@link #cancel} to the kill. */
    public static PhonogradProcess start(TrainingCommand command, TrainingListener listener, long graceSeconds)
            throws IOException {
        File binary = command.binary();
        if (!binary.canExecute()) {
            throw new FileNotFoundException(binary + ": not there or not executable; it ships as "
                    + "lib/arm64-v8a/" + Workspace.BINARY + " in an APK with android:extractNativeLibs=\"true\"");
        }
        List<String> line = new ArrayList<>(Arrays.asList("sh", "-c", NUMBER_THEN_BECOME));
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
     * Asks the process to end after the step that is running, saved; kills it if it has not within the grace. Returns at
     * once; {@link TrainingListener#onEnded} tells. Does nothing the second time, or when the process has ended.
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

    /** Waits for the end and returns it; null if it has not come within the time. Not to be called by the listener. */
    public Ending await(long time, TimeUnit unit) throws InterruptedException {
        unit.timedJoin(events, time);
        return ending;
    }

    // No lambda anywhere here: without d8's desugaring Android cannot run one.
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
            // No signal could be sent, or nobody wants to wait: what follows ends it too.
        }
        process.destroyForcibly();
    }

    private void hear() {
        TrainingListener.Report report = null;
        RuntimeException bug = null;
        int stray = 0;
        try {
            for (String line = lines.next(); line != null; line = lines.next()) {
                try {
                    TrainingListener.Report said = TrainingEvents.tell(line, listener);
                    if (said != null) report = said;
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
        int code = waited();
        joined(messages);
        Thread cancelling;
        synchronized (this) {
            over = true;
            cancelling = canceller;
        }
        if (cancelling != null) joined(cancelling);
        byte[] said = message.toString().getBytes(StandardCharsets.ISO_8859_1);
        ending = new Ending(code, new String(said, StandardCharsets.UTF_8).trim(), report, stray);
        listener.onEnded(ending);
    }

    private void hearMessages() {
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

    // Nobody interrupts these threads; an interrupt all the same must not leave a process behind.
    private int waited() {
        while (true) {
            try {
                return process.waitFor();
            } catch (InterruptedException error) {
                process.destroyForcibly();
            }
        }
    }

    private void joined(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException error) {
            process.destroyForcibly();
        }
    }
}
