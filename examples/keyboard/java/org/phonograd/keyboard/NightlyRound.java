package org.phonograd.keyboard;

import java.io.IOException;
import org.phonograd.Ending;
import org.phonograd.RoundClient;
import org.phonograd.RoundJob;
import org.phonograd.TextCollector;
import org.phonograd.TrainingCommand;
import org.phonograd.TrainingJob;
import org.phonograd.Workspace;

/** The part of this phone in a federated round, while it charges at night. It trains on what was typed last. */
public final class NightlyRound extends TrainingJob {
    @Override
    protected TrainingCommand command() {
        RoundClient client = NetworkRound.client(this);
        try {
            return client == null ? null : client.trainingCommand(new TextCollector(new Workspace(this)));
        } catch (IOException error) {
            SharedKeyboard.warn("nothing to train on", error);
            return null; // NetworkRound schedules the training again
        }
    }

    @Override
    protected void onEnded(Ending ending) {
        RoundClient client = NetworkRound.client(this);
        if (client != null) RoundJob.schedule(this, NetworkRound.class, client.ended(ending).afterSeconds);
    }
}
