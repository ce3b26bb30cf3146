package org.phonograd.keyboard;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import org.json.JSONException;
import org.json.JSONObject;
import org.phonograd.RoundClient;
import org.phonograd.ServerConnection;
import org.phonograd.Workspace;

/** What rounds need in the folder of the workspace: server.json, and what was typed last. One thread writes, any reads. */
final class RoundFiles implements RoundClient.Text {
    static final int MAX_BYTES = 20 << 10;
    private final Path server, recent, partial;

    RoundFiles(Workspace workspace) {
        server = workspace.artifacts.toPath().resolveSibling("server.json");
        recent = server.resolveSibling("recent.txt");
        partial = server.resolveSibling(".recent.txt.partial");
    }

    /** The server; throws why it is missing, without the token. */
    ServerConnection server() throws IOException {
        try {
            JSONObject said = new JSONObject(new String(Files.readAllBytes(server), StandardCharsets.UTF_8));
            String token = said.isNull("token") ? null : said.getString("token");
            return new ServerConnection(said.getString("server"), said.getString("phone"), token);
        } catch (JSONException error) { // its message has all of the file
            throw new IOException("server.json: {\"server\": URL, \"phone\": name, \"token\": if asked for} expected");
        } catch (IllegalArgumentException error) {
            throw new IOException("server.json: " + error.getMessage());
        }
    }

    /** Adds whole lines, and drops the oldest beyond MAX_BYTES. Keeps nothing if there is no server, or the last line is longer. */
    void add(String lines) throws IOException {
        if (lines.isEmpty() || !Files.exists(server)) return;
        String before = Files.exists(recent) ? new String(Files.readAllBytes(recent), StandardCharsets.UTF_8) : "";
        byte[] all = (before + lines).getBytes(StandardCharsets.UTF_8);
        int from = Math.max(0, all.length - MAX_BYTES);
        while (from > 0 && from < all.length && all[from - 1] != '\n') from++;
        if (from == all.length) return;
        byte[] newest = Arrays.copyOfRange(all, from, all.length);
        Files.deleteIfExists(partial);
        Files.write(partial, newest, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE, StandardOpenOption.SYNC);
        Files.move(partial, recent, StandardCopyOption.ATOMIC_MOVE);
    }

    void forget() throws IOException {
        Files.deleteIfExists(recent);
        Files.deleteIfExists(partial);
    }

    @Override
    public void writeTo(OutputStream out) throws IOException {
        Files.copy(recent, out);
    }
}
