package android.app.job;

import android.content.ComponentName;

/** What was asked for, as a text. */
public class JobInfo {
    public static final int NETWORK_TYPE_UNMETERED = 2;
    public final String text;

    JobInfo(String text) {
        this.text = text;
    }

    public int getId() {
        return Integer.parseInt(text.split(" ")[0]);
    }

    /** Collects it. */
    public static final class Builder {
        private String text;

        public Builder(int number, ComponentName service) {
            text = number + " " + service.name;
        }

        public Builder setRequiresCharging(boolean value) {
            text += " charging=" + value;
            return this;
        }

        public Builder setRequiresDeviceIdle(boolean value) {
            text += " idle=" + value;
            return this;
        }

        public Builder setPersisted(boolean value) {
            text += " persisted=" + value;
            return this;
        }

        public Builder setRequiredNetworkType(int type) {
            text += " network=" + type;
            return this;
        }

        public Builder setMinimumLatency(long millis) {
            text += " after=" + millis;
            return this;
        }

        public JobInfo build() {
            return new JobInfo(text);
        }
    }
}
