import android.app.job.JobParameters;
import java.io.File;
import org.phonograd.TrainingCommand;
import org.phonograd.TrainingJob;
import org.phonograd.TrainingListener;

/** Plays Android's scheduler with a job: commands on stdin, the fakes in fakes/ print what the job asks of Android. */
public final class JobDrive extends TrainingJob {
    public static void main(String[] words) throws Exception {
        JobDrive job = null;
        JobParameters parameters = null;
        java.util.Scanner commands = new java.util.Scanner(System.in);
        while (commands.hasNextLine()) {
            String command = commands.nextLine();
            switch (command) {
                case "create":
                    job = new JobDrive();
                    break;
                case "start":
                    parameters = new JobParameters();
                    System.out.println("started " + job.onStartJob(parameters));
                    break;
                case "stop":
                    System.out.println("stopped " + job.onStopJob(parameters));
                    break;
                case "destroy":
                    job.onDestroy();
                    break;
                case "schedule as 7":
                    System.out.println("scheduled " + schedule(job, JobDrive.class, 7));
                    break;
                case "schedule":
                    System.out.println("scheduled " + schedule(job, JobDrive.class));
                    break;
                default:
                    throw new IllegalArgumentException(command);
            }
        }
    }

    @Override
    protected TrainingCommand command() {
        TrainingCommand command = super.command();
        return command == null ? null : command.inRound(3, "phone-17").with("--save-every", "1").with("--threads", "1");
    }

    @Override
    protected void onReport(TrainingListener.Report report) {
        System.out.println("report " + new File(report.updatePath).length());
    }
}
