package org.phonograd;

import org.json.JSONException;
import org.json.JSONObject;

/** Passes the JSON events of {@code phonograd-phone train} to a listener. */
final class TrainingEvents {
    private TrainingEvents() {}

    /**
     * Passes the event in a line of stdout to the listener. Unknown events are ignored.
     *
     * @return the report if the line is one, else null
     * @throws JSONException if the line is not an event, or a field is missing
     */
    static TrainingListener.Report dispatch(String line, TrainingListener listener) throws JSONException {
        JSONObject event = parse(line);
        switch (event.getString("event")) {
            case "start":
                listener.onStarted(new TrainingListener.Started(event.getString("version"), event.getLong("steps"),
                        event.getLong("resumed_at"), event.getDouble("load_seconds")));
                return null;
            case "step":
                listener.onStep(new TrainingListener.Step(event.getLong("step"), event.getLong("steps"),
                        event.getDouble("loss"), event.getDouble("seconds")));
                return null;
            case "saved":
                listener.onSaved(new TrainingListener.Saved(event.getLong("step"), event.getLong("nbytes")));
                return null;
            case "interrupted":
                listener.onInterrupted(new TrainingListener.Interrupted(event.getLong("step"), event.getLong("steps"),
                        event.getBoolean("saved")));
                return null;
            case "report":
                TrainingListener.Report report = report(event);
                listener.onReport(report);
                return report;
            default:
                return null;
        }
    }

    private static JSONObject parse(String line) throws JSONException {
        try {
            return new JSONObject(line);
        } catch (StackOverflowError error) { // the parser recurses: a line of brackets
            throw new JSONException("nested too deeply");
        }
    }

    private static TrainingListener.Report report(JSONObject event) throws JSONException {
        JSONObject update = event.getJSONObject("update");
        return new TrainingListener.Report(event.getLong("steps"), event.getLong("tokens"),
                event.getDouble("loss_first"), event.getDouble("loss_last"),
                event.getDouble("seconds_per_step_median"), event.getLong("peak_rss_bytes"),
                update.getString("path"), update.getLong("nbytes"), update.getString("sha256"));
    }
}
