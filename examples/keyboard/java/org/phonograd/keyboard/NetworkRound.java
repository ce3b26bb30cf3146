package org.phonograd.keyboard;

import android.app.job.JobInfo;
import android.app.job.JobParameters;
import android.app.job.JobScheduler;
import android.content.Context;
import android.util.Log;
import java.io.UncheckedIOException;
import org.phonograd.RoundClient;
import org.phonograd.RoundJob;
import org.phonograd.ServerConnection;
import org.phonograd.TrainingJob;
import org.phonograd.Workspace;

/** What rounds need of the network, at the server that server.json names. */
public final class NetworkRound extends RoundJob {
    /** Begins the rounds, if there is a server and they have not begun. */
    static void begin(Context context) {
        boolean first = client(context) != null;
        JobScheduler scheduler = (JobScheduler) context.getSystemService(Context.JOB_SCHEDULER_SERVICE);
        for (JobInfo job : scheduler.getAllPendingJobs()) first &= job.getId() != JOB_ID;
        if (first) schedule(context, NetworkRound.class, 0);
    }

    /** null: there is no server. */
    static RoundClient client(Context context) {
        Workspace workspace = new Workspace(context);
        try {
            ServerConnection server = ServerConnection.read(workspace);
            return server == null ? null : new RoundClient(workspace, server, "rot-q2");
        } catch (UncheckedIOException error) {
            Log.w("phonograd", "no rounds: " + error);
            return null;
        }
    }

    @Override
    public boolean onStartJob(JobParameters parameters) {
        return client() != null && super.onStartJob(parameters);
    }

    @Override
    protected RoundClient client() {
        return client(this);
    }

    @Override
    protected Class<? extends TrainingJob> training() {
        return NightlyRound.class;
    }
}
