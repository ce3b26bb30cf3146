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

    /** The hash of the body that comes; empty: all of it is here. */
    final String etag;

    private final File file;
    private final HttpURLConnection request;

    /**
     * Asks for a model. If the body is another than the one in the file, the file is emptied.
     *
     * @param path of the request
     * @param begun hash of the body whose beginning is in the file; empty: none is
     * @param most bytes of the whole body
     */
    ModelDownload(ServerConnection server, String path, File file, String begun, long most) throws IOException {
        this.file = file;
        HttpURLConnection request = server.request("GET", path);
        long have = begun.isEmpty() ? 0 : file.length();
        if (have > 0) {
            request.setRequestProperty("Range", "bytes=" + have + "-");
            request.setRequestProperty("If-Range", "\"" + begun + "\"");
        }
        int status = request.getResponseCode();
        if (status == 416 && have > 0) {
            etag = "";
            this.request = request;
            return;
        }
        if (status != 200 && status != 206) throw ServerConnection.refusal(request);
        String tag = request.getHeaderField("ETag"), elsewhere = request.getHeaderField("Phonograd-Elsewhere");
        Matcher hash = ETAG.matcher(tag == null ? "" : tag);
        boolean ours = ServerConnection.isType(request, "application/octet-stream")
                || ServerConnection.isType(request, "application/vnd.phonograd.links");
        if (!ours || !hash.matches()) throw ServerConnection.stranger(request);
        etag = hash.group(1);
        if (elsewhere != null) {
            request = server.elsewhere(request, elsewhere);
            if (have > 0 && etag.equals(begun)) request.setRequestProperty("Range", "bytes=" + have + "-");
            status = request.getResponseCode();
            if (status != 200 && status != 206) throw ServerConnection.stranger(request);
        }
        this.request = request;
        String range = request.getHeaderField("Content-Range");
        boolean goesOn = range != null && range.startsWith("bytes " + have + "-") && etag.equals(begun);
        if (status == 206 && !goesOn) throw ServerConnection.stranger(request);
        if (status == 200) new FileOutputStream(file).close();
        requireBounded(most - file.length());
    }

    /** What was announced is the most that is taken. */
    private void requireBounded(long most) throws IOException {
        long announced = request.getContentLengthLong();
        String coding = request.getContentEncoding(); // aws-chunked: how an object once came to a store
        boolean coded = coding != null && !coding.matches("identity|aws-chunked");
        if (announced >= 0 && announced <= most && !coded) return;
        String found = coded ? "Content-Encoding: " + coding : announced < 0 ? "no Content-Length" : announced + " bytes";
        String message = "a model of at most " + most + " bytes expected, found " + found + "; does a proxy change it, or is it another model than the app's?";
        throw new RoundException(message, request.getResponseCode(), false, -1);
    }

    /** Adds the body to the file, and syncs it. */
    void receive() throws IOException {
        long expected = request.getContentLengthLong(), received = 0;
        byte[] buffer = new byte[1 << 16];
        try (InputStream in = request.getInputStream(); FileOutputStream out = new FileOutputStream(file, true)) {
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                received += count;
                if (received > expected) throw new IOException(expected + " bytes expected, more are coming");
                out.write(buffer, 0, count);
            }
            out.getFD().sync();
        }
        if (received != expected) throw new IOException("the connection broke after " + received + " bytes"); // Java does not say so
    }
}
