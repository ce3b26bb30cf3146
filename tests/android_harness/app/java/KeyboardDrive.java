import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.json.JSONArray;
import org.phonograd.Keyboard;
import org.phonograd.ProgramException;

/** Does what stdin says with a keyboard, and prints what comes of it: a line of JSON in ASCII for each line of JSON. */
public final class KeyboardDrive {
    private static Keyboard keyboard;

    public static void main(String[] words) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONArray answer = new JSONArray();
            try {
                answer.put(answered(new JSONArray(line)));
            } catch (ProgramException error) {
                answer.put("ProgramException").put(error.code).put(error.outcome).put(error.getMessage());
            } catch (IOException | RuntimeException error) {
                answer.put(error.getClass().getSimpleName()).put(error.getMessage());
            }
            System.out.println(ascii(answer.toString()));
        }
    }

    private static Object answered(JSONArray line) throws Exception {
        String text = line.length() > 1 && !line.isNull(1) ? line.getString(1) : null;
        switch (line.getString(0)) {
            case "open":
                keyboard = Keyboard.open(new File(text), file(line, 2), file(line, 3));
                return null;
            case "feed":
                keyboard.feed(text);
                return null;
            case "learn":
                keyboard.learn(text);
                return null;
            case "words":
                return words();
            case "delete":
                return keyboard.delete(text);
            case "veto":
                keyboard.veto(text);
                return null;
            case "allow":
                return keyboard.allow(text);
            case "vetoed":
                return new JSONArray(keyboard.vetoed());
            case "forget":
                keyboard.forget();
                return null;
            case "save":
                keyboard.save();
                return null;
            case "reset":
                keyboard.reset();
                return null;
            case "correct":
                return keyboard.correct();
            case "suggest":
                return suggested(text, line.getInt(2), line.optJSONArray(3));
            case "block":
                keyboard.block(Arrays.asList(text.split(" ")));
                return null;
            case "scores":
                JSONArray scores = new JSONArray();
                for (double score : keyboard.scores(Arrays.asList(text.split(" ")))) scores.put(Double.toString(score));
                return scores;
            case "truncate":
                new FileOutputStream(text).close();
                return null;
            case "unlocked":
                return unlocked();
            case "crowd":
                return crowd(line.getInt(2), text);
            case "close":
                keyboard.close();
                return null;
            default:
                throw new IllegalArgumentException(line.toString());
        }
    }

    private static File file(JSONArray line, int at) throws Exception {
        return line.isNull(at) ? null : new File(line.getString(at));
    }

    private static JSONArray words() throws Exception {
        JSONArray found = new JSONArray();
        for (Keyboard.PersonalWord word : keyboard.words()) found.put(new JSONArray().put(word.word).put(word.count));
        return found;
    }

    /** wish: shift, emoji, slips, cost, neighbours; null: as they are. */
    private static JSONArray suggested(String prefix, int most, JSONArray wish) throws Exception {
        JSONArray found = new JSONArray();
        Keyboard.Wish asked = new Keyboard.Wish();
        if (wish != null) {
            asked.shift = Keyboard.Shift.valueOf(wish.getString(0));
            asked.emoji = wish.getBoolean(1);
            asked.slips = wish.getBoolean(2);
            asked.slipCost = wish.getDouble(3);
            asked.neighbours = wish.isNull(4) ? null : wish.getString(4);
        }
        for (Keyboard.Suggestion word : keyboard.suggest(prefix, most, asked)) {
            found.put(new JSONArray().put(word.word).put(Double.toString(word.probability)));
        }
        return found;
    }

    /** The calls that do not take the lock: a race may be missed by those that meet by chance. */
    private static JSONArray unlocked() {
        JSONArray found = new JSONArray();
        for (Method method : Keyboard.class.getDeclaredMethods()) {
            int kind = method.getModifiers();
            boolean call = Modifier.isPublic(kind) && !Modifier.isStatic(kind);
            if (call && !Modifier.isSynchronized(kind)) found.put(method.getName());
        }
        return found;
    }

    /** Threads that feed a text, suggest and take a text back, so often that they meet. Returns what went wrong. */
    private static JSONArray crowd(final int times, final String text) throws InterruptedException {
        final JSONArray wrong = new JSONArray();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            threads.add(new Thread(new Runnable() {
                @Override
                public void run() {
                    try {
                        for (int time = 0; time < times; time++) {
                            keyboard.feed(text);
                            if (keyboard.suggest("", 3).size() != 3) throw new IllegalStateException("suggestions");
                            if (!keyboard.correct()) throw new IllegalStateException("nothing to take back");
                        }
                    } catch (IOException | RuntimeException error) {
                        synchronized (wrong) {
                            wrong.put(error.toString());
                        }
                    }
                }
            }));
        }
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        return wrong;
    }

    private static String ascii(String text) {
        StringBuilder out = new StringBuilder();
        for (char unit : text.toCharArray()) {
            out.append(unit < 128 ? String.valueOf(unit) : String.format("\\u%04x", (int) unit));
        }
        return out.toString();
    }
}
