package org.phonograd.keyboard;

import android.content.Context;
import java.io.IOException;
import org.phonograd.Workspace;

/** Adds its arguments to what was typed; or, without any, prints the server's name of this phone, or why there is none. */
public final class RoundFilesDrive {
    public static void main(String[] lines) throws IOException {
        RoundFiles files = new RoundFiles(new Workspace(new Context()));
        for (String line : lines) files.add(line);
        try {
            System.out.println(files.server().phone);
        } catch (IOException error) {
            System.out.println(error);
        }
    }
}
