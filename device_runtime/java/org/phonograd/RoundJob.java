package org.phonograd;

import android.app.job.JobInfo;
import android.app.job.JobParameters;
import android.app.job.JobScheduler;
import android.app.job.JobService;
import android.content.ComponentName;
import android.content.Context;
import android.util.Log;
import androidx.annotation.NonNull;

/**
 * Does what a round needs of the network while the phone charges on an unmetered one, and schedules what comes next. Android
 * calls it on the main thread, and it never blocks there.
 *
 * <p>An app extends it, names the subclass in the manifest, and has the permissions INTERNET and ACCESS_NETWORK_STATE. It
 * logs what comes next, never why: that may name files.
 */
public abstract class RoundJob extends JobService {
    /** The job's id. Jobs of WorkManager and of other libraries share an app's numbers. */
    public static final int JOB_ID = 141;

    private Run run; // main thread only

    /** When to use the network: charging, unmetered, and not before so many seconds have passed. */
    @NonNull
    public static JobInfo job(
            @NonNull Context context, @NonNull Class<? extends RoundJob> service, int jobId, long afterSeconds) {
        return new JobInfo.Builder(jobId, new ComponentName(context, service))
                .setRequiresCharging(true)
                .setRequiredNetworkType(JobInfo.NETWORK_TYPE_UNMETERED)
                .setMinimumLatency(1000 * afterSeconds)
                .setPersisted(true)
                .build();
    }

    /** Schedules {@link #job} as {@link #JOB_ID}, replacing the app's job of this id. Returns whether Android accepted it. */
    public static boolean schedule(
            @NonNull Context context, @NonNull Class<? extends RoundJob> service, long afterSeconds) {
        JobScheduler scheduler = (JobScheduler) context.getSystemService(Context.JOB_SCHEDULER_SERVICE);
        return scheduler.schedule(job(context, service, JOB_ID, afterSeconds)) == JobScheduler.RESULT_SUCCESS;
    }

    /** A new client of the app's workspace and server. */
    @NonNull
    protected abstract RoundClient client();

    /** The job that trains. */
    @NonNull
    protected abstract Class<? extends TrainingJob> training();

    /** A step is over: schedules the training, unless it is there already, and the next step. Called on the step's thread. */
    protected void onNext(@NonNull RoundClient.Next next) {
        if (next.action == RoundClient.Action.NOTHING) return;
        boolean train = next.action == RoundClient.Action.TRAIN;
        JobScheduler scheduler = (JobScheduler) getSystemService(Context.JOB_SCHEDULER_SERVICE);
        for (JobInfo job : scheduler.getAllPendingJobs()) train &= job.getId() != TrainingJob.JOB_ID;
        if (train) TrainingJob.schedule(this, training());
        schedule(this, getClass(), next.afterSeconds);
    }

    @Override
    public boolean onStartJob(@NonNull JobParameters parameters) {
        run = new Run(parameters);
        run.start();
        return true;
    }

    @Override
    public boolean onStopJob(@NonNull JobParameters parameters) {
        if (run.end()) run.client.cancel();
        return true; // go on when the constraints hold again
    }

    private final class Run extends Thread {
        private final JobParameters parameters;
        private final RoundClient client = client();
        private boolean over; // guarded by this

        Run(JobParameters parameters) {
            super("phonograd-round");
            this.parameters = parameters;
        }

        /** Ends it; false: it is over already. */
        synchronized boolean end() {
            boolean first = !over;
            over = true;
            return first;
        }

        @Override
        public void run() {
            RoundClient.Next next = client.network();
            Log.i("phonograd", "round: " + next.action + " after " + next.afterSeconds + " s");
            if (!end()) return; // Android starts the job again
            onNext(next); // before the end: a process that is killed in between has scheduled it
            jobFinished(parameters, false); // if onNext scheduled this job's id, Android has ended it already
        }
    }
}
