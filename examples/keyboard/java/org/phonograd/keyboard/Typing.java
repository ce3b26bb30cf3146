package org.phonograd.keyboard;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import org.phonograd.Keyboard;
import org.phonograd.ProgramException;

/**
 * What happens after each key: what the field holds, what the strip shows, what is learned. One thread; each key costs some
 * milliseconds.
 *
 * <p>A word is fed when it is finished, and learned when the next one is: a word that is deleted at once was a slip.
 */
final class Typing {
    static final int SUGGESTIONS = 3;
    private static final String JOINING = "'\u2019\u00b7\u200c\u200d"; // apostrophes, the middle dot, and what is not seen

    /** The text field that is typed into. */
    interface Field {
        void compose(String letters); // of a word that is not finished, shown in place of those shown before
        void commit(String text); // for good, in place of the letters shown
        void delete(int characters); // of UTF-16, before the cursor
        String before(); // the cursor, the letters shown too, at most 200 characters; "" if the app does not say
    }

    /** A finished word and the mark behind it, as the model was fed them. */
    private static final class Piece {
        final String word, mark;
        boolean learned;

        Piece(String word, String mark) {
            this.word = word;
            this.mark = mark;
        }

        /** What the model is told; "" for a space alone. */
        String text() {
            return (word + mark).equals(" ") ? "" : word + mark;
        }
    }

    private final Keyboard keyboard;
    private final Field field;
    private final FieldRules rules;
    private final StringBuilder letters = new StringBuilder(); // of the word that is not finished
    private final Deque<Piece> pieces = new ArrayDeque<>(); // what was typed here, the newest first
    private final StringBuilder learned = new StringBuilder(); // of what was typed here and is no longer in pieces
    private Piece reopened; // the piece whose word is being typed again

    /** Begins in a field. keyboard: null while the model is being opened, or without a model. */
    Typing(Keyboard keyboard, Field field, FieldRules rules) throws ProgramException {
        this.keyboard = rules.suggest ? keyboard : null;
        this.field = field;
        this.rules = rules;
        if (this.keyboard != null) begin();
    }

    /** What to show above the keys: at most three words, the best first. */
    List<String> strip() throws ProgramException {
        if (keyboard == null) return Collections.emptyList();
        List<String> words = new ArrayList<>();
        for (Keyboard.Suggestion word : keyboard.suggest(letters.toString(), SUGGESTIONS)) words.add(word.word);
        return words;
    }

    /** A sign: a letter of a word, or a space, a punctuation mark or a line feed, with which the word is finished. */
    void key(String sign) throws ProgramException {
        if (!rules.suggest) {
            field.commit(sign); // nothing of a password is kept here
        } else if (isOfWord(sign.codePointAt(0))) {
            letters.append(sign);
            field.compose(letters.toString());
        } else {
            field.commit(letters + sign);
            finish(letters.toString(), sign);
        }
    }

    /** Whether the word goes on with a sign: a letter, a digit, a mark on one, or what joins two. FORMAT.md, "Text". */
    private boolean isOfWord(int sign) {
        int kind = Character.getType(sign);
        boolean mark = kind == Character.NON_SPACING_MARK || kind == Character.COMBINING_SPACING_MARK;
        return Character.isLetterOrDigit(sign) || (letters.length() > 0 && (mark || JOINING.indexOf(sign) >= 0));
    }

    /** A word of the strip was touched. */
    void pick(String word) throws ProgramException {
        field.commit(word + " ");
        finish(word, " ");
    }

    /** The delete key: a letter, or the last mark, after which its word is open again. */
    void delete() throws ProgramException {
        if (letters.length() > 0) {
            letters.setLength(letters.offsetByCodePoints(letters.length(), -1));
            field.compose(letters.toString());
            return;
        }
        Piece last = pieces.peek();
        String before = field.before();
        if (last != null && before.endsWith(last.word + last.mark)) {
            reopen(pieces.pop());
            return;
        }
        close(); // the cursor was moved, or stands before what was typed here
        field.delete(before.isEmpty() ? 1 : before.length() - before.offsetByCodePoints(before.length(), -1));
        if (keyboard != null) begin();
    }

    /** The field is left, or the cursor was moved: what was typed there is learned, unless the field forbids it. Returns it. */
    String end() throws ProgramException {
        if (!pieces.isEmpty()) learn(pieces.peek());
        letters.setLength(0);
        close();
        return learned.toString();
    }

    /** What was learned is a line, and no longer changes. */
    private void close() {
        StringBuilder line = new StringBuilder();
        for (Piece piece : pieces) if (piece.learned || piece.text().isEmpty()) line.insert(0, piece.word + piece.mark);
        pieces.clear();
        String text = line.toString().trim();
        if (!text.isEmpty()) learned.append(text).append('\n');
    }

    /** The model reads the finished words before the cursor. */
    private void begin() throws ProgramException {
        String before = field.before().substring(0, field.before().length() - letters.length());
        keyboard.reset();
        int end = before.length();
        while (end > 0 && !Character.isWhitespace(before.charAt(end - 1)) && !Character.isSpaceChar(before.charAt(end - 1))) end--;
        keyboard.feed(before.substring(0, end));
    }

    private void finish(String word, String mark) throws ProgramException {
        Piece piece = new Piece(word, mark);
        piece.learned = reopened != null && reopened.learned && reopened.word.equals(word);
        reopened = null;
        letters.setLength(0);
        if (!pieces.isEmpty()) learn(pieces.peek());
        if (keyboard != null && !piece.text().isEmpty()) keyboard.feed(piece.text());
        pieces.push(piece);
    }

    /** The newest piece, which was only fed: takes that back, and learns it in its place. */
    private void learn(Piece piece) throws ProgramException {
        if (keyboard == null || !rules.learn || piece.learned || piece.text().isEmpty()) return;
        piece.learned = true;
        if (keyboard.correct()) keyboard.learn(piece.text());
    }

    private void reopen(Piece piece) throws ProgramException {
        field.delete(piece.mark.length() + piece.word.length());
        letters.append(piece.word);
        field.compose(piece.word);
        reopened = piece;
        if (keyboard != null && !piece.text().isEmpty() && !keyboard.correct()) begin(); // too long ago
    }
}
