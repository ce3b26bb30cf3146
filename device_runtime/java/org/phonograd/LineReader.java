package org.phonograd;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;

/** Reads lines of bounded length, unlike BufferedReader. Not thread-safe. */
final class LineReader {
    private final InputStream in;
    private final int maxBytes;

    LineReader(InputStream in, int maxBytes) {
        this.in = in;
        this.maxBytes = maxBytes;
    }

    /** The next line without its line break, truncated to maxBytes. Null at the end. */
    String next() throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        int value = in.read();
        if (value < 0) return null;
        for (; value >= 0 && value != '\n'; value = in.read()) {
            if (line.size() < maxBytes) line.write(value);
        }
        return new String(line.toByteArray(), StandardCharsets.UTF_8);
    }
}
