package android.content.pm;

/** What Android says of an installed app. */
public class ApplicationInfo {
    public String nativeLibraryDir;
}
