package androidx.annotation;

import java.lang.annotation.Documented;

/** It is never null: AndroidX's name, which Kotlin and Android's lint know. Only compiled against, never packaged. */
@Documented
public @interface NonNull {}
