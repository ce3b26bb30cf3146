package android.app.job;

/** Prints what is scheduled. */
public class JobScheduler {
    public static final int RESULT_SUCCESS = 1;

    public int schedule(JobInfo job) {
        System.out.println("job " + job.text);
        return RESULT_SUCCESS;
    }
}
