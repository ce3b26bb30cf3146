import java.io.File;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.phonograd.Ending;
import org.phonograd.PhonogradProcess;
import org.phonograd.TrainingCommand;
import org.phonograd.TrainingListener;

/** Runs one process and prints what its listener hears: WHEN GRACE BINARY ARTIFACTS USER UPDATE STATE [OPTION...]. */
public final class Drive implements TrainingListener {
    // "never", "at-once", "throw" (at the first step), or the number of a step.
    private final String when;
    private volatile PhonogradProcess process;

    private Drive(String when) {
        this.when = when;
    }

    public static void main(String[] words) throws Exception {
        TrainingCommand command = new TrainingCommand(
                new File(words[2]), new File(words[3]), new File(words[4]), new File(words[5]), new File(words[6]))
                .inRound(3, "phone-17");
        String[] more = Arrays.copyOfRange(words, 7, words.length);
        if (more.length > 0) command = command.with(more[0], Arrays.copyOfRange(more, 1, more.length));
        Drive drive = new Drive(words[0]);
        drive.process = PhonogradProcess.start(command, drive, Long.parseLong(words[1]));
        if (drive.when.equals("at-once")) {
            drive.process.cancel();
            drive.process.cancel();
        }
        Ending ending = drive.process.await(10, TimeUnit.MINUTES);
        drive.process.cancel();
        say("message", ending.message);
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("phonograd-")) say("thread", thread.getName());
        }
    }

    @Override
    public void onStarted(Started event) {
        say("started", event.version, event.steps, event.resumedAt, event.loadSeconds);
    }

    @Override
    public void onStep(Step event) {
        say("step", event.step, event.steps, event.loss, event.seconds);
        if (when.equals("throw")) throw new IllegalStateException("of the listener");
        if (!when.equals(String.valueOf(event.step))) return;
        process.cancel();
        try {
            // The pipe fills up meanwhile, and the process waits: it cannot finish before it hears the signal.
            Thread.sleep(500);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void onSaved(Saved event) {
        say("saved", event.step, event.bytes);
    }

    @Override
    public void onInterrupted(Interrupted event) {
        say("interrupted", event.step, event.steps, event.saved);
    }

    @Override
    public void onReport(Report event) {
        say("report", event.steps, event.tokens, event.lossFirst, event.lossLast, event.secondsPerStepMedian,
                event.peakRssBytes, event.updatePath, event.updateBytes, event.updateSha256);
    }

    @Override
    public void onEnded(Ending ending) {
        say("ended", ending.outcome, ending.code, ending.strayLines, ending.report != null);
    }

    private static synchronized void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) line.append(line.length() == 0 ? "" : "\t").append(word);
        System.out.println(line.toString().replace('\n', ' '));
    }
}
