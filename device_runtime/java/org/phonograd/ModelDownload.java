package org.phonograd;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Fetches links or a model to a file, and goes on where an earlier download broke off. Not thread-safe. */
final class ModelDownload {
    private static final Pattern ETAG = Pattern.compile("(?:W/)?\"([0-9a-f]{64})\"");

    private final File file;
    private final HttpURLConnection request;
    private final String begun;
    private final long have;

    /**
     * Asks for a model.
     *
     * @param path of the request
     * @param begun hash of the body whose beginning is in the file; empty: none is
     */
    ModelDownload(ServerConnection server, String path, File file, String begun) throws IOException {
        this.file = file;
        this.begun = begun;
        have = begun.isEmpty() ? 0 : file.length();
        request = server.request("GET", path);
        if (have == 0) return;
        request.setRequestProperty("Range", "bytes=" + have + "-");
        request.setRequestProperty("If-Range", "\"" + begun + "\"");
    }

    /** The hash of the body that comes; if it is another than was begun, the file is emptied. Empty: all of it is here. */
    String begin() throws IOException {
        int status = request.getResponseCode();
        if (status == 416 && have > 0) return "";
        if (status != 200 && status != 206) throw ServerConnection.refusal(request);
        String tag = request.getHeaderField("ETag"), range = request.getHeaderField("Content-Range");
        Matcher hash = ETAG.matcher(tag == null ? "" : tag);
        boolean ours = ServerConnection.isType(request, "application/octet-stream")
                || ServerConnection.isType(request, "application/vnd.phonograd.links");
        if (!ours || !hash.matches()) throw ServerConnection.stranger(request);
        boolean goesOn = status == 206 && range != null && range.startsWith("bytes " + have + "-") && hash.group(1).equals(begun);
        if (status == 206 && !goesOn) throw ServerConnection.stranger(request);
        if (status == 200) new FileOutputStream(file).close();
        return hash.group(1);
    }

    /** Adds the body to the file, and syncs it. */
    void receive() throws IOException {
        long expected = request.getContentLengthLong(), received = 0;
        byte[] buffer = new byte[1 << 16];
        try (InputStream in = request.getInputStream(); FileOutputStream out = new FileOutputStream(file, true)) {
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                out.write(buffer, 0, count);
                received += count;
            }
            out.getFD().sync();
        }
        if (expected >= 0 && received != expected) throw new IOException("the connection broke after " + received + " bytes"); // Java does not say so
    }
}
