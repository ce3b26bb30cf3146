package android.content;

/** A class's name. */
public final class ComponentName {
    public final String name;

    public ComponentName(Context context, Class<?> named) {
        name = named.getName();
    }
}
