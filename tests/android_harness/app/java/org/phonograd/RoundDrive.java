package org.phonograd;

import java.io.File;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Phones of one app: SERVER BINARY TEXT FOLDER TOKEN NAME..., each in FOLDER/NAME. Commands on stdin, each for all phones at
 * once: network, train, key, until N (through round N, and the next model fetched), and, for the app itself: scene SERVER TEXT
 * FOLDER STEP, to begin again there, with phones that are each killed alone at a step. Prints lines of words between tabs.
 *
 * <p>Properties: halt: the step at which the process dies, counted over all phones; kill: of 1000 steps, how many end their
 * phone, as if it was killed alone, by seed; die: the epoch's step at which the process dies; cancel: at
 * the first request; patch: connections know PATCH; models: where else they may come from; codec (none: masked rounds alone); certificate, vendor, cohort: of PhoneMasking.
 */
public final class RoundDrive implements TrainingListener {
    /** A phone's end. Nothing catches it on its way but what closes files. */
    private static final class Killed extends Error {
        private static final long serialVersionUID = 1;
    }

    private static final int HALT = Integer.getInteger("halt", 0), KILL = Integer.getInteger("kill", 0);
    private static final AtomicInteger STEPS = new AtomicInteger();
    private static String[] words;
    private static int killAt; // a step of all phones

    private final Workspace workspace;
    private final String name;
    private final Random random;
    private RoundClient client;

    private RoundDrive(String name) {
        this.name = name;
        workspace = new Workspace(new File(words[1]).getParentFile(), new File(words[3], name));
        random = new Random(Long.getLong("seed", 0) + name.hashCode());
    }

    public static void main(String[] arguments) throws Exception {
        words = arguments;
        List<RoundDrive> phones = phones();
        Scanner commands = new Scanner(System.in);
        while (commands.hasNextLine()) {
            String command = commands.nextLine();
            if (command.startsWith("scene ")) {
                String[] said = command.split(" ");
                words[0] = said[1];
                words[2] = said[2];
                words[3] = said[3];
                killAt = Integer.parseInt(said[4]);
                STEPS.set(0);
                phones = phones();
                say("did", "scene", STEPS);
                continue;
            }
            List<Thread> threads = new ArrayList<>();
            for (RoundDrive phone : phones) threads.add(new Thread(() -> phone.obey(command)));
            for (Thread thread : threads) thread.start();
            for (Thread thread : threads) thread.join();
            say("did", command, STEPS);
        }
    }

    private static List<RoundDrive> phones() {
        List<RoundDrive> phones = new ArrayList<>();
        for (int at = 5; at < words.length; at++) phones.add(new RoundDrive(words[at]));
        return phones;
    }

    private void obey(String command) {
        try {
            if (command.equals("network")) network();
            else if (command.equals("train")) train();
            else if (command.equals("key")) say(name, client().publicKey());
            else until(Long.parseLong(command.substring(6)));
        } catch (IOException | InterruptedException | IllegalArgumentException error) {
            say(name, "failed", error);
        } catch (Killed killed) {
            say(name, "killed");
            client = null;
        }
    }

    private RoundClient.Next network() {
        RoundClient.Next next = client().network();
        RoundException refused = next.trouble instanceof RoundException ? (RoundException) next.trouble : null;
        say(name, next.action, next.afterSeconds, refused == null ? "-" : refused.status + " " + refused.forGood,
                next.receivedRound == 0 ? "-" : next.receivedRound, next.trouble == null ? "-" : next.trouble.getMessage());
        return next;
    }

    private void train() throws IOException, InterruptedException {
        TrainingCommand command = client().trainingCommand(out -> Files.copy(new File(words[2]).toPath(), out));
        if (command == null) {
            say(name, "nothing to train");
            return;
        }
        step();
        say(name, "began");
        Ending ending = PhonogradProcess.start(command.with("--threads", "1"), this).await(10, TimeUnit.MINUTES);
        step();
        say(name, "trained", ending.outcome, client.ended(ending).action);
    }

    /** Goes on, whatever happens, until it has the model that round `last` ended with. */
    private void until(long last) throws IOException, InterruptedException {
        for (int tries = 0; tries < 30_000; tries++) {
            try {
                RoundClient.Next next = network();
                boolean ready = next.action == RoundClient.Action.TRAIN;
                if (ready && RoundState.read(workspace.round).round > last) return;
                if (ready) train();
                else if (next.afterSeconds > 0) Thread.sleep(20);
            } catch (Killed killed) {
                say(name, "killed");
                client = null;
            }
        }
        say(name, "gave up");
    }

    private RoundClient client() {
        if (client != null) return client;
        String token = words[4].equals("-") ? null : words[4];
        ServerConnection server = new ServerConnection(words[0], name, token, this::open, System.getProperty("models", words[0]));
        String codec = System.getProperty("codec", "rows-f32");
        int cohort = Integer.getInteger("cohort", PhoneMasking.MIN_COHORT);
        PhoneMasking masking = new PhoneMasking(System.getProperty("certificate"), System.getProperty("vendor"), cohort);
        client = new RoundClient(workspace, server, codec.equals("none") ? null : codec, masking) {
            @Override
            void step() {
                RoundDrive.this.step();
            }
        };
        return client;
    }

    private HttpURLConnection open(URL url) throws IOException {
        step();
        if (Boolean.getBoolean("cancel")) {
            client.cancel();
            throw new NullPointerException(); // as Java's own, where a connection is ended in use
        }
        HttpURLConnection own = (HttpURLConnection) url.openConnection();
        return Boolean.getBoolean("patch") ? new PatchingConnection(own) : own;
    }

    private void step() {
        int step = STEPS.incrementAndGet();
        if (step == HALT) Runtime.getRuntime().halt(137); // nothing runs after it, as after a kill
        if (step == killAt || random.nextInt(1000) < KILL) throw new Killed();
    }

    @Override
    public void onStep(Step event) {
        if (event.step == Integer.getInteger("die", 0)) Runtime.getRuntime().halt(137);
    }

    @Override
    public void onEnded(Ending ending) {}

    private static synchronized void say(Object... said) {
        StringBuilder line = new StringBuilder();
        for (Object word : said) line.append(line.length() == 0 ? "" : "\t").append(String.valueOf(word).replace('\n', ' '));
        System.out.println(line);
    }
}
