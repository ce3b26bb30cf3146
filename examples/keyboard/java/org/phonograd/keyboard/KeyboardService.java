package org.phonograd.keyboard;

import android.inputmethodservice.InputMethodService;
import android.view.View;
import android.view.inputmethod.EditorInfo;
import android.view.inputmethod.InputConnection;
import android.widget.Button;
import android.widget.LinearLayout;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.phonograd.Keyboard;
import org.phonograd.ProgramException;

/** The keyboard on the screen: a strip of three words over four rows of keys. All of it is on the main thread. */
public final class KeyboardService extends InputMethodService implements Field, SharedKeyboard.User {
    private static final String[] ROWS = {"qwertyuiop", "asdfghjkl", "zxcvbnm'", ",.?!"};
    private static final int BEFORE = 200;

    /** What a key does; the service calls {@link #strip} after it. */
    private interface Press {
        void press() throws ProgramException;
    }

    private final Button[] strip = new Button[Typing.SUGGESTIONS];
    private Keyboard keyboard;
    private FieldRules rules = new FieldRules(0, 0);
    private Typing typing;
    private boolean upper;

    @Override
    public void onCreate() {
        super.onCreate();
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
        end();
        rules = new FieldRules(info.inputType, info.imeOptions);
        if (keyboard == null) SharedKeyboard.get(this, this); // a model may have come since
        begin();
    }

    @Override
    public void onUpdateSelection(int oldStart, int oldEnd, int start, int end, int wordStart, int wordEnd) {
        super.onUpdateSelection(oldStart, oldEnd, start, end, wordStart, wordEnd);
        if (wordEnd < 0 || end == wordEnd) return;
        end(); // the cursor was moved away from the word that is typed
        begin();
    }

    @Override
    public void onFinishInput() {
        super.onFinishInput();
        end();
        if (rules.learn) SharedKeyboard.save();
    }

    @Override
    public View onCreateInputView() {
        LinearLayout all = new LinearLayout(this);
        all.setOrientation(LinearLayout.VERTICAL);
        LinearLayout words = row(all);
        for (int at = 0; at < strip.length; at++) strip[at] = key(words, "", 1, null);
        for (Button button : strip) button.setOnClickListener(listener(pick(button)));
        LinearLayout row = null;
        for (String keys : ROWS) {
            row = row(all);
            for (char key : keys.toCharArray()) key(row, String.valueOf(key), 1, sign(String.valueOf(key)));
        }
        key(row, "\u21e7", 1, new Press() {
            @Override
            public void press() {
                upper = !upper;
            }
        });
        key(row, " ", 4, sign(" "));
        key(row, "\u232b", 1, new Press() {
            @Override
            public void press() throws ProgramException {
                typing.delete();
            }
        });
        key(row, "\u23ce", 1, sign("\n"));
        strip();
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

    private void begin() {
        try {
            typing = new Typing(keyboard, this, rules);
        } catch (ProgramException error) {
            fail(error);
        }
        strip();
    }

    private void end() {
        InputConnection field = getCurrentInputConnection();
        if (field != null) field.finishComposingText();
        try {
            if (typing != null) typing.end();
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

    private void strip() {
        List<String> words = Collections.emptyList();
        try {
            if (typing != null) words = typing.strip();
        } catch (ProgramException error) {
            fail(error);
            return;
        }
        for (int at = 0; at < strip.length && strip[at] != null; at++) {
            strip[at].setText(at < words.size() ? words.get(at) : "");
        }
    }

    private Press sign(final String sign) {
        return new Press() {
            @Override
            public void press() throws ProgramException {
                typing.key(upper ? sign.toUpperCase(Locale.ROOT) : sign);
                upper = false;
            }
        };
    }

    private Press pick(final Button button) {
        return new Press() {
            @Override
            public void press() throws ProgramException {
                if (button.getText().length() > 0) typing.pick(button.getText().toString());
            }
        };
    }

    private View.OnClickListener listener(final Press press) {
        return new View.OnClickListener() {
            @Override
            public void onClick(View view) {
                try {
                    if (typing != null) press.press();
                } catch (ProgramException error) {
                    fail(error);
                }
                strip();
            }
        };
    }

    private LinearLayout row(LinearLayout all) {
        LinearLayout row = new LinearLayout(this);
        all.addView(row);
        return row;
    }

    private Button key(LinearLayout row, String label, int width, Press press) {
        Button key = new Button(this);
        key.setText(label);
        key.setAllCaps(false);
        if (press != null) key.setOnClickListener(listener(press));
        row.addView(key, new LinearLayout.LayoutParams(0, LinearLayout.LayoutParams.WRAP_CONTENT, width));
        return key;
    }
}
