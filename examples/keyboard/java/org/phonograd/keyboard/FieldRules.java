package org.phonograd.keyboard;

import android.text.InputType; // numbers, which the compiler copies: this class runs on any JVM

/** What a field allows, from its EditorInfo. */
final class FieldRules {
    // EditorInfo's; the API to compile against may be older than it.
    private static final int IME_FLAG_NO_PERSONALIZED_LEARNING = 0x1000000;

    /** Whether the strip may show anything; if not, the model is not even told what is typed. */
    final boolean suggest;
    /** Whether the user's words may be learned. */
    final boolean learn;

    FieldRules(int inputType, int imeOptions) {
        boolean text = (inputType & InputType.TYPE_MASK_CLASS) == InputType.TYPE_CLASS_TEXT;
        boolean quiet = (inputType & InputType.TYPE_TEXT_FLAG_NO_SUGGESTIONS) != 0;
        boolean secret = false, address = false;
        switch (inputType & InputType.TYPE_MASK_VARIATION) {
            case InputType.TYPE_TEXT_VARIATION_PASSWORD:
            case InputType.TYPE_TEXT_VARIATION_VISIBLE_PASSWORD:
            case InputType.TYPE_TEXT_VARIATION_WEB_PASSWORD:
                secret = true;
                break;
            case InputType.TYPE_TEXT_VARIATION_URI:
            case InputType.TYPE_TEXT_VARIATION_EMAIL_ADDRESS:
            case InputType.TYPE_TEXT_VARIATION_WEB_EMAIL_ADDRESS:
                address = true;
                break;
            default:
        }
        suggest = text && !secret && !quiet;
        learn = suggest && !address && (imeOptions & IME_FLAG_NO_PERSONALIZED_LEARNING) == 0;
    }
}
