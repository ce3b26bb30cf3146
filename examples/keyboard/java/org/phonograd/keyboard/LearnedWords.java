package org.phonograd.keyboard;

import android.app.AlertDialog;
import android.app.ListActivity;
import android.content.DialogInterface;
import android.view.View;
import android.widget.ArrayAdapter;
import android.widget.ListView;
import java.util.ArrayList;
import java.util.List;
import org.phonograd.Keyboard;
import org.phonograd.ProgramException;

/** What was learned, how often it was written, and how to take it back: one word, a word for ever, or everything. */
public final class LearnedWords extends ListActivity
        implements SharedKeyboard.User, DialogInterface.OnClickListener {
    private Keyboard keyboard;
    private final List<Keyboard.PersonalWord> words = new ArrayList<>();
    private String asked; // a word; null: everything

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
        asked = at < words.size() ? words.get(at).word : null;
        new AlertDialog.Builder(this)
                .setTitle(asked == null ? "Forget everything that was learned?" : asked)
                .setPositiveButton(asked == null ? "Forget" : "Delete", this)
                .setNeutralButton(asked == null ? null : "Never learn it", this) // no text: no button
                .setNegativeButton("Cancel", null)
                .show();
    }

    @Override
    public void onClick(DialogInterface dialog, int button) {
        try {
            if (asked == null) keyboard.forget();
            else if (button == DialogInterface.BUTTON_POSITIVE) keyboard.delete(asked);
            else keyboard.veto(asked);
            SharedKeyboard.save(null);
        } catch (ProgramException error) {
            SharedKeyboard.warn("not deleted", error);
        }
        show();
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
