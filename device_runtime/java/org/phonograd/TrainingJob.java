package org.phonograd;

import android.app.job.JobInfo;
import android.app.job.JobParameters;
import android.app.job.JobScheduler;
import android.app.job.JobService;
import android.content.ComponentName;
import android.content.Context;
import android.util.Log;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Trains while the phone charges and nobody uses it, in as many pieces as Android allows. Android calls it on the main
 * thread; it never blocks there.
 *
 * <p>An app extends it, names its own class in the manifest and in {@link #job}, and overrides {@link #command} and
 * {@link #onReport}. The log gets outcomes and exit codes, never a text, a path or a number of words.
 */
public class TrainingJob extends JobService {
    /** The job's number in this app. */
    public static final int JOB_ID = 140;

    private static final String TAG = "phonograd";
    // Of the process, not of the service: Android may make a new service while the old one's epoch is still being saved.
    private static Run latest; // main thread only

    private Run run; // main thread only

    /**
     * When to train. Charging, as Android's scheduler has it, includes a battery that is not low; idle, that the screen
     * has been off for half an hour or more. No network: an update is another job's to upload.
     */
    public static JobInfo job(Context context, Class<? extends TrainingJob> service) {
        return new JobInfo.Builder(JOB_ID, new ComponentName(context, service))
                .setRequiresCharging(true)
                .setRequiresDeviceIdle(true)
                .setPersisted(true)
                .build();
    }

    /** Schedules {@link #job}, replacing the one scheduled before. Returns whether Android took it. */
    public static boolean schedule(Context context, Class<? extends TrainingJob> service) {
        JobScheduler scheduler = (JobScheduler) context.getSystemService(Context.JOB_SCHEDULER_SERVICE);
        return scheduler.schedule(job(context, service)) == JobScheduler.RESULT_SUCCESS;
    }

    /** What to run, or null if there is nothing to train on. The same until an epoch is done, else it starts anew. */
    protected TrainingCommand command() {
        Workspace workspace = new Workspace(this);
        return workspace.ready() ? workspace.command() : null;
    }

    /** The update is on disk: schedule its upload, forget the text. Called on the process's thread. */
    protected void onReport(TrainingListener.Report report) {}

    @Override
    public boolean onStartJob(JobParameters parameters) {
        TrainingCommand command = command();
        if (command == null) return false;
        run = new Run(parameters, command, latest);
        latest = run;
        run.start();
        return true;
    }

    @Override
    public boolean onStopJob(JobParameters parameters) {
        if (run != null) run.stop();
        return true; // resume when the constraints hold again
    }

    @Override
    public void onDestroy() {
        if (run != null) run.stop();
        super.onDestroy();
    }

    /** One piece of an epoch: from onStartJob to the process's end. */
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

        /** Waits until the piece before has let go of the state folder, a long step at most, then starts the process. */
        @Override
        public void run() {
            try {
                if (previous != null) previous.ended.await(2 * PhonogradProcess.GRACE_SECONDS, TimeUnit.SECONDS);
                launch();
            } catch (IOException | InterruptedException error) {
                Log.w(TAG, "training did not start", error);
                finish(!(error instanceof FileNotFoundException)); // no binary for this phone, tomorrow neither
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
            // Refused even so: another process is at it.
            finish(ending.outcome.again || ending.outcome == Ending.Outcome.STATE_REFUSED);
        }

        /** An epoch begun anew costs minutes; a state that nobody can use would cost all epochs to come. */
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
