package android.content;

import android.app.job.JobScheduler;
import android.content.pm.ApplicationInfo;
import java.io.File;

/** A phone in the folder named by the property "phone". */
public class Context {
    public static final String JOB_SCHEDULER_SERVICE = "jobscheduler";

    private static File folder(String name) {
        return new File(System.getProperty("phone"), name);
    }

    public ApplicationInfo getApplicationInfo() {
        ApplicationInfo info = new ApplicationInfo();
        info.nativeLibraryDir = folder("lib").getPath();
        return info;
    }

    public File getNoBackupFilesDir() {
        return folder("no_backup");
    }

    public Object getSystemService(String name) {
        return new JobScheduler();
    }
}
