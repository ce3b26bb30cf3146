package org.phonograd;

import android.content.BroadcastReceiver;
import android.content.Context;
import android.content.Intent;

/** Schedules the training when told so over adb: the manifest lets nobody else. An app schedules it by itself. */
public final class ScheduleReceiver extends BroadcastReceiver {
    @Override
    public void onReceive(Context context, Intent intent) {
        setResultCode(TrainingJob.schedule(context, TrainingJob.class) ? 0 : 1);
    }
}
