package org.phonograd;

import android.app.job.JobInfo;
import android.app.job.JobParameters;
import android.app.job.JobScheduler;
import android.app.job.JobService;
import android.content.ComponentName;
import android.content.Context;
import android.util.Log;
import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Trains while the phone charges and is idle, in as many parts as Android allows. Android calls it on the main thread, and
 * it never blocks there.
 *
 * <p>An app extends it, names the subclass in the manifest and in {@link #job}, and overrides {@link #command} and
 * {@link #onReport}. It logs outcomes and exit codes, never a text, a path or a word count.
 */
public class TrainingJob extends JobService {
    /** The job's id, if the app gives no other. Jobs of WorkManager and of other libraries share an app's numbers. */
    public static final int JOB_ID = 140;

    private static final String TAG = "phonograd";
    // Static, as Android may create a new service while the old one's state is still being saved.
    private static Run latest; // main thread only

    private Run run; // main thread only

    /**
     * When to train. For Android's scheduler, charging implies that the battery is not low, and idle that the screen has
     * been off for half an hour or more. No network is required: another job uploads the update.
     */
    @NonNull
    public static JobInfo job(@NonNull Context context, @NonNull Class<? extends TrainingJob> service, int jobId) {
        return new JobInfo.Builder(jobId, new ComponentName(context, service))
                .setRequiresCharging(true)
                .setRequiresDeviceIdle(true)
                .setPersisted(true)
                .build();
    }

    /** Schedules {@link #job} as {@link #JOB_ID}. */
    public static boolean schedule(@NonNull Context context, @NonNull Class<? extends TrainingJob> service) {
        return schedule(context, service, JOB_ID);
    }

    /** Schedules {@link #job}, replacing the app's job of this id. Returns whether Android accepted it. */
    public static boolean schedule(@NonNull Context context, @NonNull Class<? extends TrainingJob> service, int jobId) {
        JobScheduler scheduler = (JobScheduler) context.getSystemService(Context.JOB_SCHEDULER_SERVICE);
        return scheduler.schedule(job(context, service, jobId)) == JobScheduler.RESULT_SUCCESS;
    }

    /** What to run, or null if there is nothing to train on. If it changes during an epoch, the epoch starts again. */
    @Nullable
    protected TrainingCommand command() {
        Workspace workspace = new Workspace(this);
        return workspace.ready() ? workspace.command() : null;
    }

    /** The update is on disk: schedule its upload and delete the text. Called on the process's thread. */
    protected void onReport(@NonNull TrainingListener.Report report) {}

    /** A part of the epoch has ended, or all of it. Called on the process's thread, after {@link #onReport}. */
    protected void onEnded(@NonNull Ending ending) {}

    @Override
    public boolean onStartJob(@NonNull JobParameters parameters) {
        TrainingCommand command = command();
        if (command == null) return false;
        run = new Run(parameters, command, latest);
        latest = run;
        run.start();
        return true;
    }

    @Override
    public boolean onStopJob(@NonNull JobParameters parameters) {
        if (run != null) run.stop();
        return true; // resume when the constraints hold again
    }

    @Override
    public void onDestroy() {
        if (run != null) run.stop();
        super.onDestroy();
    }

    /** One part of an epoch: from onStartJob to the process's end. */
    private final class Run implements Runnable, TrainingListener {
        private final JobParameters parameters;
        private final Run previous;
        private final CountDownLatch ended = new CountDownLatch(1);
        private TrainingCommand command; // guarded by this
        private PhonogradProcess process; // guarded by this
        private boolean stopped, restarted; // guarded by this

        Run(JobParameters parameters, TrainingCommand command, Run previous) {
            this.parameters = parameters;
            this.command = command;
            this.previous = previous;
        }

        void start() {
            new Thread(this, "phonograd-start").start();
        }

        /** Waits until the previous part has released the state folder (at most one long step), then starts the process. */
        @Override
        public void run() {
            try {
                if (previous != null) previous.ended.await(2 * PhonogradProcess.GRACE_SECONDS, TimeUnit.SECONDS);
                launch();
            } catch (IOException | InterruptedException error) {
                Log.w(TAG, "training did not start", error);
                finish(!(error instanceof FileNotFoundException)); // without a binary, retrying is pointless
            }
        }

        private synchronized void launch() throws IOException {
            if (stopped) {
                finish(true);
                return;
            }
            process = PhonogradProcess.start(command, this);
        }

        synchronized void stop() {
            stopped = true;
            if (process != null) process.cancel();
        }

        @Override
        public void onReport(Report report) {
            TrainingJob.this.onReport(report);
        }

        @Override
        public void onEnded(Ending ending) {
            Log.i(TAG, "training: " + ending.outcome + ", exit code " + ending.code);
            if (ending.outcome == Ending.Outcome.STATE_REFUSED && restart()) return;
            TrainingJob.this.onEnded(ending);
            // Refused again: another process is using the state.
            finish(ending.outcome.again || ending.outcome == Ending.Outcome.STATE_REFUSED);
        }

        /** Starting the epoch again costs minutes; an unusable state would block all future epochs. */
        private synchronized boolean restart() {
            if (restarted || stopped) return false;
            restarted = true;
            command = command.with("--restart");
            start();
            return true;
        }

        private synchronized void finish(boolean again) {
            ended.countDown();
            if (!stopped) jobFinished(parameters, again);
        }
    }
}
