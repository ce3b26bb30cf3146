package org.phonograd;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import org.json.JSONException;
import org.json.JSONObject;

/** Who this phone is at which server, and the model that it begins with, as the workspace has them. */
final class Enrolment {
    private Enrolment() {}

    static void write(File file, String server, String phone, String token) throws IOException {
        try {
            JSONObject said = new JSONObject().put("server", server).put("phone", phone).put("token", token);
            AtomicFiles.write(file, said.toString().getBytes(StandardCharsets.UTF_8));
        } catch (JSONException error) {
            throw new IllegalStateException(error); // of numbers alone
        }
    }

    /** Reads it; an error never has the token. */
    static ServerConnection read(File file) throws IOException {
        try {
            JSONObject said = new JSONObject(new String(Files.readAllBytes(file.toPath()), StandardCharsets.UTF_8));
            String token = said.isNull("token") ? null : said.getString("token");
            return new ServerConnection(said.getString("server"), said.getString("phone"), token);
        } catch (JSONException error) { // its message has all of the file
            throw new IOException("server.json: {\"server\": URL, \"phone\": name, \"token\": if asked for} expected");
        } catch (IllegalArgumentException error) {
            throw new IOException("server.json: " + error.getMessage());
        }
    }

    /** Unpacks a ZIP of an artifacts folder, which is there as a whole or not at all. */
    static void unpack(InputStream model, File artifacts) throws IOException {
        File partial = AtomicFiles.partial(artifacts);
        AtomicFiles.remove(partial);
        Files.createDirectories(partial.toPath());
        final ZipInputStream zip = new ZipInputStream(model);
        for (ZipEntry entry = zip.getNextEntry(); entry != null; entry = zip.getNextEntry()) {
            if (entry.isDirectory()) continue;
            String name = new File(entry.getName()).getName(); // of a folder in the ZIP too, and never elsewhere on the phone
            AtomicFiles.write(new File(partial, name), new RoundClient.Text() {
                @Override
                public void writeTo(OutputStream out) throws IOException {
                    byte[] buffer = new byte[1 << 16];
                    for (int count = zip.read(buffer); count >= 0; count = zip.read(buffer)) out.write(buffer, 0, count);
                }
            });
        }
        if (!new File(partial, "manifest.json").isFile()) {
            throw new IOException("model: a ZIP of an artifacts folder expected, found no manifest.json in it");
        }
        if (!partial.renameTo(artifacts)) throw new IOException("model: another file is in the place of the artifacts folder");
        AtomicFiles.sync(artifacts.getParentFile());
    }
}
