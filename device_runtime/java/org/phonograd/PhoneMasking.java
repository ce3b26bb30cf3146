package org.phonograd;

import androidx.annotation.NonNull;
import androidx.annotation.Nullable;
import java.util.regex.Pattern;

/** What a phone takes part with in masked rounds, in which the server learns the sum of the updates alone. Immutable and thread-safe. */
public final class PhoneMasking {
    /** The fewest phones of a round that a phone masks with, unless the app chooses another number. */
    public static final int MIN_COHORT = 50;

    private static final Pattern SIGNATURE = Pattern.compile("[0-9a-f]{128}"), PUBLIC_KEY = Pattern.compile("[0-9a-f]{64}");

    /** The vendor's signature of the phone's name and {@link RoundClient#publicKey}, in lower-case hexadecimal; null: none. */
    @Nullable public final String certificate;
    /** The vendor's public key, in lower-case hexadecimal; null: a phone is known by the key that it had first. */
    @Nullable public final String vendor;
    /** The fewest phones that this phone takes part with; with fewer it leaves the round. */
    public final int minCohort;

    /** Without a vendor, with at least {@link #MIN_COHORT} phones. */
    public PhoneMasking() {
        this(null, null, MIN_COHORT);
    }

    /**
     * With the vendor's keys, as {@code phonograd keys} shows them.
     *
     * @throws IllegalArgumentException if one of them is not what it should be; the message has its name, not its value
     */
    public PhoneMasking(@Nullable String certificate, @Nullable String vendor, int minCohort) {
        require(certificate == null || SIGNATURE.matcher(certificate).matches(), "certificate: 128 digits in lower-case hex expected");
        require(vendor == null || PUBLIC_KEY.matcher(vendor).matches(), "vendor: 64 digits in lower-case hex expected");
        require(minCohort >= 1, "minCohort: at least 1 phone expected");
        this.certificate = certificate;
        this.vendor = vendor;
        this.minCohort = minCohort;
    }

    private static void require(boolean met, String message) {
        if (!met) throw new IllegalArgumentException(message);
    }
}
