package org.phonograd.keyboard;

import android.text.InputType; // numbers, which the compiler copies: this class runs on any JVM
import java.util.Arrays;
import java.util.List;

/** What a field allows, from its EditorInfo. */
final class FieldRules {
    // EditorInfo's; the API to compile against may be older than it.
    private static final int IME_FLAG_NO_PERSONALIZED_LEARNING = 0x1000000;
    private static final List<Integer> SECRET = Arrays.asList(InputType.TYPE_TEXT_VARIATION_PASSWORD,
            InputType.TYPE_TEXT_VARIATION_VISIBLE_PASSWORD, InputType.TYPE_TEXT_VARIATION_WEB_PASSWORD);
    private static final List<Integer> ADDRESS = Arrays.asList(InputType.TYPE_TEXT_VARIATION_URI,
            InputType.TYPE_TEXT_VARIATION_EMAIL_ADDRESS, InputType.TYPE_TEXT_VARIATION_WEB_EMAIL_ADDRESS);

    /** Whether the strip may show anything; if not, the model is not even told what is typed. */
    final boolean suggest;
    /** Whether the user's words may be learned. */
    final boolean learn;

    FieldRules(int inputType, int imeOptions) {
        boolean text = (inputType & InputType.TYPE_MASK_CLASS) == InputType.TYPE_CLASS_TEXT;
        boolean quiet = (inputType & InputType.TYPE_TEXT_FLAG_NO_SUGGESTIONS) != 0;
        int variation = inputType & InputType.TYPE_MASK_VARIATION;
        suggest = text && !quiet && !SECRET.contains(variation);
        learn = suggest && !ADDRESS.contains(variation) && (imeOptions & IME_FLAG_NO_PERSONALIZED_LEARNING) == 0;
    }
}
