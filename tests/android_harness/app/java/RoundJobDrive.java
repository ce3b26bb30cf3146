import android.app.job.JobParameters;
import java.util.Scanner;
import org.phonograd.RoundClient;
import org.phonograd.RoundJob;
import org.phonograd.ServerConnection;
import org.phonograd.TrainingJob;
import org.phonograd.Workspace;

/** Plays Android's scheduler with a job for the network: commands on stdin, the fakes print what the job asks of Android. */
public final class RoundJobDrive extends RoundJob {
    public static void main(String[] words) {
        RoundJob job = new RoundJobDrive();
        Scanner commands = new Scanner(System.in);
        while (commands.hasNextLine()) {
            String command = commands.nextLine();
            if (command.equals("start")) System.out.println("started " + job.onStartJob(new JobParameters()));
            else System.out.println("stopped " + job.onStopJob(new JobParameters()));
        }
    }

    @Override
    protected RoundClient client() {
        return new RoundClient(new Workspace(this), new ServerConnection(System.getProperty("server"), "phone-17", null), "rows-f32");
    }

    @Override
    protected Class<? extends TrainingJob> training() {
        return JobDrive.class;
    }
}
