package android.app.job;

import java.util.ArrayList;
import java.util.List;

/** Prints what is scheduled. */
public class JobScheduler {
    public static final int RESULT_SUCCESS = 1;

    private static final List<JobInfo> PENDING = new ArrayList<>();

    public List<JobInfo> getAllPendingJobs() {
        return PENDING;
    }

    public int schedule(JobInfo job) {
        PENDING.add(job);
        System.out.println("job " + job.text);
        return RESULT_SUCCESS;
    }
}
