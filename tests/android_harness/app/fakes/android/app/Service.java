package android.app;

import android.content.Context;

/** A service. */
public abstract class Service extends Context {
    public void onDestroy() {
        System.out.println("destroyed");
    }
}
