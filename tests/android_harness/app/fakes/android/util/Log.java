package android.util;

/** Prints the log. */
public final class Log {
    private Log() {}

    public static int i(String tag, String message) {
        System.out.println("log " + tag + " " + message);
        return 0;
    }

    public static int w(String tag, String message, Throwable error) {
        System.out.println("log " + tag + " " + message + ": " + error);
        return 0;
    }
}
