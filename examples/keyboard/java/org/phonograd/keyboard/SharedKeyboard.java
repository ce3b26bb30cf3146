package org.phonograd.keyboard;

import android.content.Context;
import android.os.Handler;
import android.os.Looper;
import android.util.Log;
import java.io.File;
import java.io.IOException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.phonograd.Ending;
import org.phonograd.Keyboard;
import org.phonograd.ProgramException;
import org.phonograd.TextCollector;
import org.phonograd.Workspace;

/** The process's one keyboard, which the typing service and the list of words share: one handle has the file of words. */
final class SharedKeyboard {
    interface User {
        /** On the main thread. null: there is no model on this phone. */
        void use(Keyboard keyboard);
    }

    private static final String TAG = "phonograd";
    private static final ExecutorService FILES = Executors.newSingleThreadExecutor(); // what reads and writes them
    private static final Handler MAIN = new Handler(Looper.getMainLooper());
    private static Keyboard keyboard; // on the thread of FILES, as is the next
    private static TextCollector text;

    /** Opens it if it is not open, and hands it over. */
    static void get(final Context context, final User user) {
        FILES.execute(new Runnable() {
            @Override
            public void run() {
                text = new TextCollector(new Workspace(context));
                if (keyboard == null) keyboard = openKeyboard(new Workspace(context).artifacts);
                final Keyboard found = keyboard;
                MAIN.post(new Runnable() {
                    @Override
                    public void run() {
                        user.use(found);
                    }
                });
            }
        });
    }

    /** Writes what was learned, and the lines that it was learned from; null: a word was taken back, and all lines with it. */
    static void save(final String lines) {
        FILES.execute(new Runnable() {
            @Override
            public void run() {
                try {
                    if (lines == null) text.forget(); // first: it works when the storage is full, too
                    else text.add(lines);
                    if (keyboard != null) keyboard.save();
                } catch (IOException error) {
                    warn("words not saved", error);
                }
            }
        });
    }

    /** Says what failed, and no text: neither messages nor words go to the log. */
    static void warn(String what, IOException error) {
        Object code = error instanceof ProgramException ? ((ProgramException) error).code : error.getClass().getName();
        Log.w(TAG, what + ": " + code);
    }

    private static Keyboard openKeyboard(File artifacts) {
        File words = new File(artifacts.getParentFile(), "personal");
        try {
            return Keyboard.open(artifacts, null, words);
        } catch (ProgramException error) {
            warn("no suggestions", error);
            boolean damaged = error.outcome == Ending.Outcome.STATE_REFUSED;
            // Kept for a look at it; the next start begins without it.
            if (damaged && !words.renameTo(new File(words + ".damaged"))) Log.w(TAG, "damaged words stay");
        } catch (IOException error) {
            warn("no suggestions", error);
        }
        return null;
    }

    private SharedKeyboard() {}
}
