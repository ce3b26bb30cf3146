package android.app.job;

import android.app.Service;

/** Prints when the job says that it is done. */
public abstract class JobService extends Service {
    public abstract boolean onStartJob(JobParameters parameters);

    public abstract boolean onStopJob(JobParameters parameters);

    public final void jobFinished(JobParameters parameters, boolean again) {
        System.out.println("finished " + parameters.start + " " + again);
    }
}
