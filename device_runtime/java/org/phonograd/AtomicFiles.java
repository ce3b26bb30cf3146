package org.phonograd;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.math.BigInteger;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** Files that are whole or not there, also after a power cut; their removal and their hashes. */
final class AtomicFiles {
    private AtomicFiles() {}

    /** Writes a file: the content goes to {@link #partial} first, which takes the file's place once it is synced. */
    static void write(File file, RoundClient.Text content) throws IOException {
        File partial = partial(file);
        try {
            try (FileOutputStream out = new FileOutputStream(partial)) {
                content.writeTo(out);
                out.getFD().sync();
            }
            if (!partial.renameTo(file)) throw new IOException("cannot be renamed to " + file.getName());
            sync(file.getParentFile());
        } catch (IOException error) {
            partial.delete();
            throw new IOException(file.getName() + " cannot be written, nothing is lost: " + error.getMessage(), error);
        }
    }

    /** Writes these bytes. */
    static void write(File file, final byte[] bytes) throws IOException {
        write(file, new RoundClient.Text() {
            @Override
            public void writeTo(OutputStream out) throws IOException {
                out.write(bytes);
            }
        });
    }

    /** What a killed process leaves of a file that it was writing. */
    static File partial(File file) {
        return new File(file.getParentFile(), "." + file.getName() + ".partial");
    }

    /** Removes a file, or a folder with all that is in it. */
    static void remove(File file) throws IOException {
        File[] inside = Files.isSymbolicLink(file.toPath()) ? null : file.listFiles();
        if (inside != null) for (File one : inside) remove(one);
        Files.deleteIfExists(file.toPath());
    }

    /** Makes renames and removals in a folder durable. */
    static void sync(File folder) {
        try (FileChannel channel = FileChannel.open(folder.toPath(), StandardOpenOption.READ)) {
            channel.force(true);
        } catch (IOException error) {
            // A file system that cannot do it: the steps' order alone protects from a power cut.
        }
    }

    /** SHA-256 of a file, in hexadecimal. */
    static String sha256(File file) throws IOException {
        byte[] buffer = new byte[1 << 16];
        try (InputStream in = new FileInputStream(file)) {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) digest.update(buffer, 0, count);
            return String.format("%064x", new BigInteger(1, digest.digest()));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error); // every Java has it
        }
    }
}
