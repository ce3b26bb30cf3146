package org.phonograd.keyboard;

/** What a field allows, from its EditorInfo. The numbers are Android's, which promises to keep them. */
final class FieldRules {
    static final int MASK_CLASS = 0xf, CLASS_TEXT = 1, MASK_VARIATION = 0xff0, FLAG_NO_SUGGESTIONS = 0x80000;
    static final int URI = 0x10, EMAIL = 0x20, PASSWORD = 0x80, VISIBLE_PASSWORD = 0x90, WEB_EMAIL = 0xd0, WEB_PASSWORD = 0xe0;
    static final int NO_PERSONALIZED_LEARNING = 0x1000000; // of imeOptions, since Android 8

    /** Whether the strip may show anything; if not, the model is not even told what is typed. */
    final boolean suggest;
    /** Whether the user's words may be learned. */
    final boolean learn;

    FieldRules(int inputType, int imeOptions) {
        int variation = inputType & MASK_VARIATION;
        boolean secret = variation == PASSWORD || variation == VISIBLE_PASSWORD || variation == WEB_PASSWORD;
        boolean address = variation == URI || variation == EMAIL || variation == WEB_EMAIL;
        boolean text = (inputType & MASK_CLASS) == CLASS_TEXT;
        suggest = text && !secret && (inputType & FLAG_NO_SUGGESTIONS) == 0;
        learn = suggest && !address && (imeOptions & NO_PERSONALIZED_LEARNING) == 0;
    }
}
