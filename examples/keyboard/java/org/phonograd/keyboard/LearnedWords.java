package org.phonograd.keyboard;

import android.app.AlertDialog;
import android.app.ListActivity;
import android.content.DialogInterface;
import android.os.Bundle;
import android.view.View;
import android.widget.ArrayAdapter;
import android.widget.ListView;
import java.util.ArrayList;
import java.util.List;
import org.phonograd.Keyboard;
import org.phonograd.ProgramException;

/** What was learned, how often it was written, and how to take it back: one word, a word for ever, or everything. */
public final class LearnedWords extends ListActivity implements SharedKeyboard.User {
    private Keyboard keyboard;
    private final List<Keyboard.PersonalWord> words = new ArrayList<>();

    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        NightlyRound.schedule(this);
    }

    @Override
    protected void onResume() {
        super.onResume();
        SharedKeyboard.get(this, this);
    }

    @Override
    public void use(Keyboard opened) {
        keyboard = opened;
        show();
    }

    @Override
    protected void onListItemClick(ListView list, View view, int at, long id) {
        if (keyboard == null) return;
        if (at == words.size()) ask("Forget everything that was learned?", null);
        else ask(words.get(at).word, words.get(at).word);
    }

    private void ask(String title, final String word) {
        DialogInterface.OnClickListener answer = new DialogInterface.OnClickListener() {
            @Override
            public void onClick(DialogInterface dialog, int button) {
                try {
                    if (word == null) keyboard.forget();
                    else if (button == DialogInterface.BUTTON_POSITIVE) keyboard.delete(word);
                    else keyboard.veto(word);
                    SharedKeyboard.save();
                } catch (ProgramException error) {
                    SharedKeyboard.warn("not deleted", error);
                }
                show();
            }
        };
        AlertDialog.Builder dialog = new AlertDialog.Builder(this).setTitle(title).setNegativeButton("Cancel", null);
        dialog.setPositiveButton(word == null ? "Forget" : "Delete", answer);
        if (word != null) dialog.setNeutralButton("Never learn it", answer);
        dialog.show();
    }

    private void show() {
        List<String> lines = new ArrayList<>();
        words.clear();
        try {
            if (keyboard != null) words.addAll(keyboard.words());
        } catch (ProgramException error) {
            SharedKeyboard.warn("no list", error);
        }
        for (Keyboard.PersonalWord word : words) lines.add(word.word + "  \u00d7" + word.count);
        lines.add(keyboard == null ? "No model on this phone yet" : "Forget everything");
        setListAdapter(new ArrayAdapter<>(this, android.R.layout.simple_list_item_1, lines));
    }
}
