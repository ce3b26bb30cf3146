package org.phonograd;

import android.content.BroadcastReceiver;
import android.content.Context;
import android.content.Intent;

/** Schedules the training on a broadcast from adb; the manifest allows no other sender. Real apps schedule it themselves. */
public final class ScheduleReceiver extends BroadcastReceiver {
    @Override
    public void onReceive(Context context, Intent intent) {
        setResultCode(TrainingJob.schedule(context, TrainingJob.class) ? 0 : 1);
    }
}
