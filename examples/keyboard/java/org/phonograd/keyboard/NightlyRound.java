package org.phonograd.keyboard;

import android.content.Context;
import org.phonograd.TrainingJob;

/** The part of this phone in a federated round, while it charges at night. It trains on the text in the workspace. */
public final class NightlyRound extends TrainingJob {
    static boolean schedule(Context context) {
        return TrainingJob.schedule(context, NightlyRound.class);
    }
}
