package org.phonograd.keyboard;

import android.inputmethodservice.InputMethodService;
import android.view.View;
import android.view.inputmethod.EditorInfo;
import android.view.inputmethod.InputConnection;
import android.widget.Button;
import android.widget.LinearLayout;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.phonograd.Keyboard;
import org.phonograd.ProgramException;

/** The keyboard on the screen: a strip of three words over four rows of keys. All of it is on the main thread. */
public final class KeyboardService extends InputMethodService
        implements Typing.Field, SharedKeyboard.User, View.OnClickListener {
    private static final String[] ROWS = {"" /* the strip */, "qwertyuiop", "asdfghjkl", "zxcvbnm'", ",.?!\u21e7 \u232b\u23ce"};
    private static final int BEFORE = 200;

    private final Button[] strip = new Button[Typing.SUGGESTIONS];
    private Keyboard keyboard;
    private FieldRules rules = new FieldRules(0, 0);
    private Typing typing;
    private final StringBuilder learned = new StringBuilder(); // since the keyboard was last hidden
    private boolean upper;

    @Override
    public void onCreate() {
        super.onCreate();
        NetworkRound.begin(this);
        SharedKeyboard.get(this, this);
    }

    @Override
    public void use(Keyboard opened) {
        keyboard = opened;
        begin();
    }

    @Override
    public void onStartInput(EditorInfo info, boolean restarting) {
        super.onStartInput(info, restarting);
        rules = new FieldRules(info.inputType, info.imeOptions);
        if (keyboard == null) SharedKeyboard.get(this, this); // a model may have come since
        begin();
    }

    @Override
    public void onUpdateSelection(int oldStart, int oldEnd, int start, int end, int wordStart, int wordEnd) {
        super.onUpdateSelection(oldStart, oldEnd, start, end, wordStart, wordEnd);
        if (wordEnd < 0 || end == wordEnd) return;
        begin(); // the cursor was moved away from the word that is typed
    }

    @Override
    public void onFinishInput() {
        super.onFinishInput();
        end();
        if (rules.learn) SharedKeyboard.save(learned.toString());
        learned.setLength(0);
    }

    @Override
    public View onCreateInputView() {
        LinearLayout all = new LinearLayout(this);
        all.setOrientation(LinearLayout.VERTICAL);
        for (String keys : ROWS) {
            LinearLayout row = new LinearLayout(this);
            all.addView(row);
            for (int at = 0; keys.isEmpty() && at < strip.length; at++) strip[at] = key(row, "", 1);
            for (char key : keys.toCharArray()) key(row, String.valueOf(key), key == ' ' ? 4 : 1);
        }
        begin();
        return all;
    }

    @Override
    public void compose(String letters) {
        InputConnection field = getCurrentInputConnection();
        if (field != null) field.setComposingText(letters, 1);
    }

    @Override
    public void commit(String text) {
        InputConnection field = getCurrentInputConnection();
        if (field == null) return;
        boolean enter = text.endsWith("\n");
        field.commitText(enter ? text.substring(0, text.length() - 1) : text, 1);
        if (enter && !sendDefaultEditorAction(true)) sendKeyChar('\n');
    }

    @Override
    public void delete(int characters) {
        InputConnection field = getCurrentInputConnection();
        if (field != null) field.deleteSurroundingText(characters, 0);
    }

    @Override
    public String before() {
        InputConnection field = getCurrentInputConnection();
        CharSequence before = field == null ? null : field.getTextBeforeCursor(BEFORE, 0);
        return before == null ? "" : before.toString();
    }

    /** Ends what was typed before. */
    private void begin() {
        end();
        try {
            typing = new Typing(keyboard, this, rules);
            strip();
        } catch (ProgramException error) {
            fail(error);
        }
    }

    private void end() {
        InputConnection field = getCurrentInputConnection();
        if (field != null) field.finishComposingText();
        try {
            if (typing != null) learned.append(typing.end());
        } catch (ProgramException error) {
            fail(error);
        }
        typing = null;
    }

    /** The letters still work without suggestions. */
    private void fail(ProgramException error) {
        SharedKeyboard.warn("no more suggestions", error);
        keyboard = null;
        typing = null;
        begin();
    }

    private void strip() throws ProgramException {
        List<String> words = typing.strip();
        for (int at = 0; at < strip.length && strip[at] != null; at++) {
            strip[at].setText(at < words.size() ? words.get(at) : "");
        }
    }

    @Override
    public void onClick(View key) {
        try {
            if (typing == null) return;
            press((Button) key, ((Button) key).getText().toString());
            strip();
        } catch (ProgramException error) {
            fail(error);
        }
    }

    private void press(Button key, String label) throws ProgramException {
        if (Arrays.asList(strip).contains(key)) {
            if (!label.isEmpty()) typing.pick(label);
        } else if (label.equals("\u21e7")) {
            upper = !upper;
        } else if (label.equals("\u232b")) {
            typing.delete();
        } else {
            typing.key(label.equals("\u23ce") ? "\n" : upper ? label.toUpperCase(Locale.ROOT) : label);
            upper = false;
        }
    }

    private Button key(LinearLayout row, String label, int width) {
        Button key = new Button(this);
        key.setText(label);
        key.setAllCaps(false);
        key.setOnClickListener(this);
        row.addView(key, new LinearLayout.LayoutParams(0, LinearLayout.LayoutParams.WRAP_CONTENT, width));
        return key;
    }
}
