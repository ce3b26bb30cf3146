package org.phonograd;

import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;

/** One step of a round at a time, in all of the app's processes. A killed process holds none. */
final class StepLock implements Closeable {
    // A process does not lock a file against itself.
    private static final Set<File> HELD = new HashSet<>(); // guarded by itself

    private final File file;
    private FileChannel channel;

    /** IOException: another step has it. */
    StepLock(File file) throws IOException {
        this.file = file;
        synchronized (HELD) {
            if (!HELD.add(file)) throw new IOException("another step of the round is running");
        }
        try {
            channel = FileChannel.open(file.toPath(), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
            if (channel.tryLock() == null) throw new IOException("another process is at the round");
        } catch (IOException error) {
            close();
            throw error;
        }
    }

    @Override
    public void close() throws IOException {
        synchronized (HELD) {
            HELD.remove(file);
        }
        if (channel != null) channel.close();
    }
}
