package org.phonograd.keyboard;

/** The text field that is typed into, as much of it as {@link Typing} needs. */
interface Field {
    /** Shows the letters of a word that is not finished, in place of those shown before. */
    void compose(String letters);

    /** Writes text for good, in place of the letters shown by {@link #compose}. */
    void commit(String text);

    /** Deletes this many characters (UTF-16) before the cursor. */
    void delete(int characters);

    /** What is before the cursor, the letters of compose() too, at most 200 characters; "" if the app does not say. */
    String before();
}
