package android.app.job;

/** Which start of the job it was. */
public class JobParameters {
    private static int made;
    public final int start = ++made;
}
